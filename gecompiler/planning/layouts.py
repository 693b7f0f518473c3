"""The parallel layouts that a model and a number of cards allow, before any is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gecompiler.passes.parallel.plan import KvHeads, SequenceWay
from gecompiler.planning.facts import ModelFacts

ROUNDS = (1, 2, 4)
"""Micro-batches are tried as so many times the stages, as far as the batch divides."""


@dataclass(frozen=True, order=True)
class Layout:
    """Ranks along each axis of the mesh, and how the batch goes through a pipeline."""

    tp: int = 1
    sp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    micro_batches: int = 1
    pipeline_schedule: str = "1f1b"
    chunks: int = 1
    abreast: int = 1
    """So many micro-batches take turns between their collectives, where there is one stage."""
    exchange: SequenceWay = "gather"
    """How queries see the keys of other cards of sp."""
    kv_heads: KvHeads = "replicate"
    """What becomes of KV heads that are fewer than the cards of tp."""

    @property
    def axes(self) -> dict[str, int]:
        """Sizes by axis, those of 1 left out."""
        names = ("pp", "dp", "ep", "sp", "tp")
        return {name: size for name in names if (size := getattr(self, name)) > 1}

    def options(self) -> dict[str, object]:
        """The options of a compilation in this layout."""
        found: dict[str, object] = {n: getattr(self, n) for n in ("tp", "sp", "dp", "pp", "ep")}
        found["micro_batches"] = self.micro_batches
        found["pipeline_schedule"] = self.pipeline_schedule
        if self.chunks > 1:
            found["pipeline_chunks"] = self.chunks
        if self.exchange != "gather":
            found["sequence_exchange"] = self.exchange
        if self.kv_heads != "replicate":
            found["shared_kv_heads"] = self.kv_heads
        return found

    def __str__(self) -> str:
        text = " ".join(f"{name}{size}" for name, size in reversed(self.axes.items())) or "one card"
        if self.micro_batches > 1:
            text += f" mb{self.micro_batches}"
        if self.chunks > 1:
            text += f" v{self.chunks}"
        if self.abreast > 1:
            text += " abreast"
        if self.exchange != "gather":
            text += f" {self.exchange}"
        if self.kv_heads != "replicate":
            text += f" kv-{self.kv_heads}"
        return text


def layouts(facts: ModelFacts, cards: int, *, training: bool = False) -> tuple[Layout, ...]:
    """All layouts that use all cards, in a fixed order.

    Heads are shared evenly by tp (KV heads, where there are fewer, are held by several cards),
    the sequence by sp (in a decode step the KV cache), the batch by dp and then by micro-batches,
    the layers by stages.
    """
    found: dict[Layout, None] = {}
    for tp, rest in _divided(cards):
        if not tp_fits(facts, tp):
            continue
        for sp, rest_sp in _divided(rest):
            if sp > 1 and not sp_fits(facts, sp):
                continue
            for ep, rest_ep in _divided(rest_sp):
                if ep > 1 and (not facts.experts or facts.experts % ep):
                    continue
                for pp, dp in _divided(rest_ep):
                    if facts.batch % dp == 0 and pp <= max(1, facts.layers):
                        for layout in _pipelines(facts, Layout(tp, sp, dp, pp, ep), training):
                            found[layout] = None
    return tuple(found)


def _divided(count: int) -> Iterator[tuple[int, int]]:
    """The divisors, each with what is left."""
    for size in range(1, count + 1):
        if count % size == 0:
            yield size, count // size


def tp_fits(facts: ModelFacts, tp: int) -> bool:
    """Whether heads are shared evenly by so many cards."""
    if tp == 1:
        return True
    if not facts.q_heads or facts.q_heads % tp:
        return False
    return facts.kv_heads % tp == 0 or tp % max(1, facts.kv_heads) == 0


def sp_fits(facts: ModelFacts, sp: int) -> bool:
    """Whether so many cards share the tokens evenly, or in a decode step a cache of keys."""
    if facts.seq < 2:
        return facts.cached >= sp
    return facts.seq % sp == 0


def _pipelines(facts: ModelFacts, base: Layout, training: bool) -> Iterator[Layout]:
    """The ways to cut a card's batch into micro-batches."""
    own = facts.batch // base.dp
    if base.pp == 1:
        yield base
        if training and facts.cuttable:
            for count in (2, 4, 8):
                if own % count == 0:
                    yield _with(base, count)
        return
    if not facts.cuttable:
        yield base
        return
    counts = [base.pp * rounds for rounds in ROUNDS if own % (base.pp * rounds) == 0]
    if not counts:
        counts = [max(n for n in range(1, min(own, 4 * base.pp) + 1) if own % n == 0)]
    for count in counts:
        yield _with(base, count)
        if count % base.pp == 0 and facts.layers >= 2 * base.pp:
            yield _with(base, count, "interleaved", 2)


def _with(base: Layout, count: int, order: str = "1f1b", chunks: int = 1) -> Layout:
    return Layout(base.tp, base.sp, base.dp, base.pp, base.ep, count, order, chunks)
