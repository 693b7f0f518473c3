"""The way a batch goes through the cards: what the options ask for, else the best simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gecompiler.cards.side_by_side import MOST_OPS, Way, WaySearch, asked_counts, auto_counts
from gecompiler.passes.memory.plan import MemoryPlan

if TYPE_CHECKING:
    from gecompiler.cards.batch_cut import BatchCut
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.ir.diagnostics import Diagnostics
    from gecompiler.ir.graph import Graph

LEAST_STREAMS = 2
"""With fewer nothing hides."""

SLOWER = 1.02
"""All ranks with their memory planned may take so much longer than one of each kind without."""


def search_ways(
    search: WaySearch,
    graph: Graph,
    count: int,
    values: Mapping[str, Any],
    cutting: BatchCut | None,
    diagnostics: Diagnostics,
) -> CardsResult:
    """The schedule on all cards.

    ``graph`` is bound to one of ``count`` micro-batches. With stages these follow each other
    through them. Without, those asked for (``micro_batches``, ``pipeline``) go one after the
    other or side by side, whichever is faster; under ``auto`` a batch whose samples are proven
    apart is cut where that hides communication. What does not fit the memory, or only with
    orders that make it slow, gives way to the batch as it was if that does better.
    """
    way, uncut = Way(count), ""
    if search.cards.stages == 1 and _may_overlap(search, values):
        if count > 1:
            way = search.forced((count,))
        elif cutting is not None and search.cards.micro_batches is None:
            way, uncut = _cut(search, graph, values, cutting, diagnostics)
    found = search.schedule(way)
    if way != Way(count) and (_over(found) or _held_back(found, search, way)):
        safe = search.schedule(Way(count))
        if _rank(safe) <= _rank(found):
            found, way = safe, Way(count)
    whole = search.program(1) if count == 1 and way.micro_batches > 1 else None
    tried = tuple(sorted(search.found.values(), key=lambda t: t.way))
    return replace(found, tried=tried, whole=whole, uncut=uncut)


def _may_overlap(search: WaySearch, values: Mapping[str, Any]) -> bool:
    streams = search.streams
    if search.control is not None and search.control.places:
        return False
    return bool(values["enable_stream_parallel"]) and (streams is None or streams >= LEAST_STREAMS)


def _cut(
    search: WaySearch,
    graph: Graph,
    values: Mapping[str, Any],
    cutting: BatchCut,
    diagnostics: Diagnostics,
) -> tuple[Way, str]:
    """The way under ``auto`` and ``pipeline``, and why the batch stays whole if it must."""
    strategy, replicas = values["stream_strategy"], search.cards.mesh.axis_size("dp")
    if strategy not in ("auto", "pipeline"):
        return Way(), ""
    if strategy == "auto":
        counts = auto_counts(cutting.batch, replicas) if len(graph) <= MOST_OPS else ()
    else:
        counts = asked_counts(cutting.batch, replicas, values["pipeline_depth"])
    why = cutting.refusal(graph)
    if not why and not counts:
        why = f"a batch of {cutting.batch} is not cut evenly"
    if strategy == "auto":
        gain = 0.0 if values["num_streams"] else values["auto_min_gain"]
        return (Way() if why else search.auto(counts, gain)), why
    if why:
        diagnostics.warn(
            "pipeline-not-possible",
            f"the batch is not split into micro-batches: {why}",
            "the whole batch goes through the cards at once",
        )
        return Way(), why
    return search.forced(counts), ""


def _held_back(found: CardsResult, search: WaySearch, way: Way) -> bool:
    """Whether using memory again took orders that made it slower than it was without."""
    tried = search.found.get(way)
    return tried is not None and _us(found) > SLOWER * tried.makespan_us


def _rank(found: CardsResult) -> tuple[bool, float]:
    """What fits comes first, then what is faster."""
    return _over(found), _us(found)


def _us(found: CardsResult) -> float:
    return found.timeline.makespan_ns / 1000


def _arena(found: CardsResult) -> int:
    return max(plan.arena_bytes for plan in _plans(found))


def _over(found: CardsResult) -> bool:
    return _arena(found) > found.cluster.limits.memory_bytes


def _plans(found: CardsResult) -> list[MemoryPlan]:
    return [part.memory for part in found.parts if part.memory is not None]
