"""What one card takes for the batch of a plan: more cards may be slower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gecompiler.ir.errors import GecError
from gecompiler.planning.layouts import Layout
from gecompiler.planning.memory import least_memory, rank_memory

if TYPE_CHECKING:
    from gecompiler.planning.assess import Assessor
    from gecompiler.planning.facts import ModelFacts


@dataclass(frozen=True)
class OneCard:
    """The model on one card, as it is compiled without options of several."""

    time_us: float
    memory_bytes: float

    def speedup(self, time_us: float) -> float:
        """How many times as fast cards are that take ``time_us``; below 1 they are slower."""
        return self.time_us / time_us if time_us else 0.0


def one_card(assessor: Assessor, facts: ModelFacts, memory: int) -> OneCard | None:
    """Compiles the model for one card of so many bytes of ``memory``; None where it is too large.

    None too where it cannot be compiled there: the cards' layouts stand without it.
    """
    from gecompiler.driver import compile_source

    if least_memory(facts, Layout(), training=assessor.training) > memory:
        return None
    try:
        found = compile_source(assessor.source, assessor.request).result
    except GecError:
        return None
    made = found.schedule
    held = rank_memory(made.buffers, made.arena_bytes, training=assessor.training)
    if held.total > memory:
        return None
    return OneCard(found.timeline.makespan_ns / 1000, held.total)
