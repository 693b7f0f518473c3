"""The search: layouts that fit the memory, each simulated, ranked by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gecompiler.ir.errors import GecError, UsageError
from gecompiler.planning.assess import Assessment, Assessor
from gecompiler.planning.facts import ModelFacts, model_facts
from gecompiler.planning.finding import Finding, sequence_finding
from gecompiler.planning.layouts import Layout, layouts
from gecompiler.planning.memory import least_memory
from gecompiler.planning.one_card import OneCard, one_card
from gecompiler.planning.variants import VariantSearch

if TYPE_CHECKING:
    from gecompiler.request import Request

Progress = Callable[[int, int], None]

MOST_SIMULATED = 48
"""So many layouts are simulated, those first whose estimate is the shortest."""


@dataclass(frozen=True)
class PlanRequest:
    """What is to be planned: the model with its sizes, and the cards."""

    request: Request
    cards: int
    memory_bytes: int | None = None
    """Of a card; the device's where not given."""
    training: bool = False
    most: int = MOST_SIMULATED


@dataclass(frozen=True)
class Refused:
    """A layout that is not ranked, and why."""

    layout: Layout
    reason: str
    memory_bytes: float = 0.0
    """What it needs at least, where that is the reason."""


@dataclass(frozen=True)
class Plan:
    """The ranking. ``ranked`` fit the memory, the fastest first; ``too_large`` the smallest."""

    model: str
    device: str
    topology: str
    cards: int
    memory_bytes: int
    facts: ModelFacts
    ranked: tuple[Assessment, ...]
    too_large: tuple[Assessment, ...] = ()
    refused: tuple[Refused, ...] = ()
    finding: Finding | None = None
    one_card: OneCard | None = None
    """None where the model does not fit on one card, or the plan is of one."""
    training: bool = False
    considered: int = 0
    skipped: int = 0
    """Layouts that were not simulated, since others promised more."""
    variants: int = 0
    """Other ways of these (exchanges, KV heads, parts side by side) that were simulated."""
    ruled_out: int = 0
    """Those that promised less, or were one too many."""
    warnings: tuple[str, ...] = field(default=())


def plan(asked: PlanRequest, progress: Progress | None = None) -> Plan:
    """Searches the layouts of a model on a number of cards.

    UsageError where no layout divides the model, or nothing fits: with what would be needed.
    """
    assessor = Assessor.of(asked.request, asked.cards, training=asked.training)
    facts = model_facts(
        assessor.source, assessor.whole, assessor.binding, training=assessor.training
    )
    assessor.facts = facts
    memory = asked.memory_bytes or assessor.device.limits.memory_bytes
    every = layouts(facts, asked.cards, training=asked.training)
    if not every:
        raise UsageError(
            f"no layout of {asked.cards} cards divides the model: {_sizes(facts)}",
            where="--cards",
            hint="give a number of cards that divides heads, layers, sequence or batch",
        )
    fit, refused = _fitting(every, facts, memory, training=asked.training)
    if not fit:
        raise _nothing_fits(refused, asked, memory)
    fit.sort(key=lambda layout: (assessor.estimate(layout), layout))
    chosen = fit[: asked.most]
    found = _assessed(assessor, chosen, refused, progress)
    searched = _variants(assessor, facts, found, memory, refused)
    found += searched.found if searched is not None else []
    if not found:
        why = next(r for r in reversed(refused) if not r.memory_bytes)
        raise UsageError(
            f"no layout could be made of the model; {why.layout}: {why.reason}", where="plan"
        )
    ranked = [a for a in found if a.memory.total <= memory]
    too_large = [a for a in found if a.memory.total > memory]
    if not ranked:
        needs = [Refused(a.layout, "memory", a.memory.total) for a in too_large]
        raise _nothing_fits(needs, asked, memory)
    return Plan(
        model=assessor.source.graph.name,
        device=assessor.device.name,
        topology=assessor.topology.name,
        cards=asked.cards,
        memory_bytes=memory,
        facts=facts,
        ranked=tuple(sorted(ranked, key=lambda a: (a.time_us, a.layout))),
        too_large=tuple(sorted(too_large, key=lambda a: (a.memory.total, a.layout))),
        refused=tuple(refused),
        finding=sequence_finding(assessor, facts, asked.cards),
        one_card=None if asked.cards == 1 else one_card(assessor, facts, memory),
        training=asked.training,
        considered=len(every),
        skipped=len(fit) - len(chosen),
        variants=searched.tried if searched is not None else 0,
        ruled_out=searched.ruled_out if searched is not None else 0,
        warnings=tuple(w.message for w in assessor.diagnostics),
    )


def _fitting(
    every: Sequence[Layout], facts: ModelFacts, memory: int, *, training: bool
) -> tuple[list[Layout], list[Refused]]:
    """The layouts whose weights and cache fit at best, and those that cannot."""
    fit: list[Layout] = []
    refused: list[Refused] = []
    for layout in every:
        least = least_memory(facts, layout, training=training)
        if least <= memory:
            fit.append(layout)
        else:
            refused.append(Refused(layout, "memory", least))
    return fit, refused


def _assessed(
    assessor: Assessor,
    chosen: Sequence[Layout],
    refused: list[Refused],
    progress: Progress | None,
) -> list[Assessment]:
    """Looks at each; those that cannot be made join the refused, with the reason."""
    found: list[Assessment] = []
    for number, layout in enumerate(chosen, 1):
        try:
            found.append(assessor.assess(layout))
        except GecError as error:
            refused.append(Refused(layout, error.message))
        if progress is not None:
            progress(number, len(chosen))
    return found


def _variants(
    assessor: Assessor,
    facts: ModelFacts,
    found: Sequence[Assessment],
    memory: int,
    refused: list[Refused],
) -> VariantSearch | None:
    """Variants of the layouts that fit the memory; of those that do not, where none does."""

    def assess(layout: Layout) -> Assessment | None:
        try:
            return assessor.assess(layout)
        except GecError as error:
            refused.append(Refused(layout, error.message))
            return None

    ranked = [a for a in found if a.memory.total <= memory] or list(found)
    if not ranked:
        return None
    search = VariantSearch(facts, assess, memory, assessor.training)
    search.run(ranked)
    return search


def _sizes(facts: ModelFacts) -> str:
    return (
        f"{facts.q_heads} heads, {facts.layers} attention layers, sequence {facts.seq}, "
        f"batch {facts.batch}"
    )


def _nothing_fits(refused: Sequence[Refused], asked: PlanRequest, memory: int) -> UsageError:
    """What would be needed, from the layout that needs least."""
    from gecompiler.units import size

    best = min(refused, key=lambda r: (r.memory_bytes, r.layout))
    cards = -(-asked.cards * best.memory_bytes // memory)
    return UsageError(
        f"nothing fits {size(memory)} a card: the least is {size(round(best.memory_bytes))}, by "
        f"{best.layout}",
        where=f"--cards {asked.cards}",
        hint=f"give cards of {size(round(best.memory_bytes))} (--memory), about {cards:.0f} cards "
        "of this size, or a smaller batch or sequence",
    )
