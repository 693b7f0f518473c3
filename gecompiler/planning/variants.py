"""Other ways of a layout that was simulated, tried where they could be the fastest of all.

A variant shares the model out as its layout does, and communicates in another way: keys go round
or heads are exchanged, KV heads are made in equal parts, the batch goes through in parts side by
side. It hides at best all that showed. One that could not come near the best found so far by
that is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gecompiler.planning.layouts import Layout

if TYPE_CHECKING:
    from gecompiler.planning.assess import Assessment
    from gecompiler.planning.facts import ModelFacts

MOST_VARIANTS = 8
"""So many are simulated, those first that could be the fastest."""

SHRINKS = 0.85
"""Side by side, one part's vector work overlaps another's cube work: computing takes 11% less on
the models measured, 15% less at most as is assumed here."""

LEAST_EXPOSED = 0.01
"""A layout whose communication shows less of its time has nothing that a variant could hide."""


def ways_of(layout: Layout, facts: ModelFacts) -> Iterator[Layout]:
    """The same layout with keys and values shared in another way."""
    if layout.sp > 1 and facts.seq > 1:
        yield replace(layout, exchange="ring")
        if _heads_divide(layout, facts):
            yield replace(layout, exchange="all-to-all")
    if facts.kv_heads and layout.tp > facts.kv_heads:
        yield replace(layout, kv_heads="split")


def parts_of(layout: Layout, facts: ModelFacts, *, training: bool = False) -> Iterator[Layout]:
    """The same with its batch in parts side by side; a training step's that is in parts."""
    talks = layout.tp * layout.sp * layout.ep > 1
    if layout.pp > 1 or not talks or not facts.cuttable or layout.abreast > 1:
        return
    own = facts.batch // layout.dp
    if training:
        if layout.micro_batches > 1:
            yield replace(layout, abreast=2)
        return
    for count in (2, 4):
        if layout.micro_batches == 1 and own % count == 0:
            yield replace(layout, micro_batches=count, abreast=count)


@dataclass
class VariantSearch:
    """Tries variants of layouts and keeps count of those that a bound ruled out."""

    facts: ModelFacts
    assess: Callable[[Layout], Assessment | None]
    memory: int
    training: bool = False
    found: list[Assessment] = field(default_factory=list)
    ruled_out: int = 0
    tried: int = 0

    def run(self, ranked: Sequence[Assessment]) -> list[Assessment]:
        """Variants of the ranked layouts; exchanges first, then parts of what is best of each."""
        self.best_us = min(a.time_us for a in ranked)
        order = sorted(ranked, key=lambda a: (self._least(a), a.layout))
        for base in order:
            own = [base, *self._try(base, ways_of(base.layout, self.facts))]
            best = min(own, key=lambda a: (a.time_us, a.layout))
            self._try(best, parts_of(best.layout, self.facts, training=self.training))
        return self.found

    def _try(self, base: Assessment, layouts: Iterator[Layout]) -> list[Assessment]:
        found: list[Assessment] = []
        last = base  # where two parts bring nothing, four are not tried
        for layout in layouts:
            hidden = base.exposed_us < LEAST_EXPOSED * base.time_us
            worse = last is not base and last.layout.abreast > 1 and last.time_us >= base.time_us
            few = self.tried < MOST_VARIANTS
            if hidden or worse or self._least(base) >= self.best_us or not few:
                self.ruled_out += 1
                continue
            self.tried += 1
            made = self.assess(layout)
            if made is not None and not _same(made, base):
                last = made
                found.append(made)
                if made.memory.total <= self.memory:
                    self.best_us = min(self.best_us, made.time_us)
        self.found += found
        return found

    def _least(self, base: Assessment) -> float:
        """About what a variant takes at least: its computing, side by side."""
        return SHRINKS * (base.time_us - base.exposed_us)


def _same(made: Assessment, base: Assessment) -> bool:
    """Whether the other way could not be taken, so that keys are gathered after all."""
    return (made.time_us, made.sent_bytes) == (base.time_us, base.sent_bytes)


def _heads_divide(layout: Layout, facts: ModelFacts) -> bool:
    """Whether a card's query heads are shared evenly once more, by the cards of sp."""
    heads = facts.q_heads // layout.tp
    return heads > 0 and heads % layout.sp == 0
