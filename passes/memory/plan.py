"""An address for every tensor, in one arena.

Below lie the weights, the state and the inputs, which are there before the run; above them
activations and outputs take turns. Memory is used again only where the schedule's own order
makes that safe. Where that does not fit the device, `plan_memory` with ``ordered=False`` takes
turns along the placement's sequence, and names the orders (`hazards`) that must be added.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gecompiler.ir.schedule import Buffer
from gecompiler.passes.memory.fit import (
    Layout,
    Request,
    Times,
    best_layout,
    live_at_peak,
    live_bytes,
)
from gecompiler.passes.memory.lifetimes import Block, Clock, blocks, from_start
from gecompiler.passes.scheduling.task_graph import Dep, TaskGraph
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.sync import Positions

PEAK_TENSORS = 5
"""So many of the largest are named."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything lies, and how good that is."""

    buffers: tuple[Buffer, ...]
    arena_bytes: int
    live_bytes: int
    """The most that is live at once: no plan with the same sharing can be smaller."""
    weight_bytes: int
    planner: str
    hazards: tuple[Dep, ...] = ()
    """Orders that this use of memory demands beyond those it was planned under."""
    peak: tuple[tuple[str, int], ...] = ()
    """The largest tensors that are in memory together when the most is, and their bytes."""


def plan_memory(
    placement: Placement, clock: Clock, where: Positions, *, ordered: bool = True
) -> MemoryPlan:
    """Plans the memory of a placement whose syncs enforce ``clock``."""
    graph = placement.graph
    found = blocks(graph, clock, where)
    below = [b for b in found if from_start(b)]
    above = [b for b in found if not from_start(b)]
    offset: dict[int, int] = {}
    top = 0
    for block in below:
        offset[id(block)], top = top, top + block.bytes
    view = (clock, where) if ordered else _in_sequence(placement, where)
    requests = [_request(b, view[0], view[1], where.rank) for b in above]
    layout = best_layout(requests, _floor(placement.sequence, view[0]))
    for block, place in zip(above, layout.offsets, strict=True):
        offset[id(block)] = top + place
    hazards = () if ordered else tuple(_hazards(above, layout, clock, where))
    weights = sum(b.bytes for b in below if b.storages[0].kind == "weight")
    return MemoryPlan(
        _buffers(graph, found, offset),
        top + layout.bytes,
        top + live_bytes(requests),
        weights,
        layout.planner,
        hazards,
        tuple(_peak_tensors([*below, *(above[i] for i in live_at_peak(requests))])),
    )


def _peak_tensors(live: Iterable[Block]) -> Iterator[tuple[str, int]]:
    """The largest blocks, named after what is written to them first."""
    for block in sorted(live, key=lambda b: (-b.bytes, b.storages[0].root))[:PEAK_TENSORS]:
        yield block.storages[0].root, block.bytes


def _in_sequence(placement: Placement, where: Positions) -> tuple[Clock, Positions]:
    """The order in which everything would run on one stream."""
    zero = (0,) * len(placement.sequence)
    return [(r,) for r in where.rank], Positions(zero, where.rank, where.rank, 1)


def _request(block: Block, clock: Clock, where: Positions, rank: Sequence[int]) -> Request:
    writers = block.writers
    users = block.storages[-1].users
    return Request(
        block.bytes,
        min(rank[w] for w in writers),
        max(rank[u] for u in users),
        tuple(map(min, *(clock[w] for w in writers))) if len(writers) > 1 else clock[writers[0]],
        None if block.permanent else block.needs(where),
    )


def _floor(sequence: Sequence[int], clock: Clock) -> list[Times]:
    """What every task from a place of the sequence on knows to be done."""
    found: list[Times] = [()] * len(sequence)
    least: Times | None = None
    for place in range(len(sequence) - 1, -1, -1):
        knows = clock[sequence[place]]
        least = knows if least is None else tuple(map(min, least, knows))
        found[place] = least
    return found


def _buffers(
    graph: TaskGraph, found: Iterable[Block], offset: dict[int, int]
) -> tuple[Buffer, ...]:
    place: dict[str, tuple[int, str | None]] = {}
    for block in found:
        before: str | None = None
        for storage in block.storages:
            place[storage.root] = (offset[id(block)], before)
            before = storage.root
        for at, part in block.parts:
            place[part.root] = (offset[id(block)] + at, block.storages[0].root)
    result: list[Buffer] = []
    for tensor, spec in graph.tensors.items():
        root = graph.root(tensor)
        at, donor = place[root]
        kind = graph.tensors[root].kind
        alias = root if root != tensor else donor
        result.append(Buffer(tensor, at, spec.bytes, kind, alias))
    return tuple(result)


def _hazards(above: Sequence[Block], layout: Layout, clock: Clock, where: Positions) -> list[Dep]:
    """Orders between the last users of memory and those who write it next, where none holds."""
    result: dict[Dep, None] = {}
    map_ = _Occupants()
    order = sorted(range(len(above)), key=lambda i: min(where.rank[w] for w in above[i].writers))
    for i in order:
        block = above[i]
        if not block.bytes:
            continue
        for j in map_.replace(layout.offsets[i], layout.offsets[i] + block.bytes, i):
            last = above[j].storages[-1]
            for user, start in product(last.users, block.writers):
                if clock[start][where.lane[user]] <= where.order[user]:
                    result[Dep(user, start, "buffer", last.root)] = None
    return list(result)


class _Occupants:
    """Who holds each stretch of memory: sorted starts, each stretch up to the next one."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._holder: list[int] = [-1]

    def replace(self, low: int, high: int, holder: int) -> list[int]:
        """Gives [low, high) to ``holder``; returns who held parts of it, each once."""
        first = bisect_right(self._starts, low) - 1
        last = bisect_right(self._starts, high - 1) - 1
        found = [h for h in dict.fromkeys(self._holder[first : last + 1]) if h >= 0]
        tail = self._holder[last]
        starts, holders = [low], [holder]
        if self._starts[first] < low:
            starts.insert(0, self._starts[first])
            holders.insert(0, self._holder[first])
        end = self._starts[last + 1] if last + 1 < len(self._starts) else None
        if end is None or high < end:
            starts.append(high)
            holders.append(tail)
        self._starts[first : last + 1] = starts
        self._holder[first : last + 1] = holders
        return found
