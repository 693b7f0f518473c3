"""Fewer streams out of many: those that do not help, and those the device does not have."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence

from gecompiler.passes.scheduling.task_graph import TaskGraph


def fold_ineffective(
    preds: Sequence[Sequence[int]],
    succs: Sequence[Sequence[int]],
    stream: Sequence[int],
    kept: Collection[int],
    closed: Collection[int] = (),
) -> list[int]:
    """Moves a unit onto the stream that waits for it anyway (GE's OptimizeIneffectiveMultiStream).

    A unit without a neighbour on its own stream moves to a stream on which its latest input
    and its earliest output follow each other: that stream would stand idle meanwhile. Units in
    ``kept`` stay where they are, and nothing moves onto a stream in ``closed``. Units are in
    topological order.
    """
    found = list(stream)
    members: dict[int, list[int]] = {}
    for unit, s in enumerate(found):
        members.setdefault(s, []).append(unit)
    for unit, own in enumerate(found):
        around = [*preds[unit], *succs[unit]]
        if unit in kept or any(found[n] == own for n in around):
            continue
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        for p in preds[unit]:
            last[found[p]] = max(p, last.get(found[p], p))
        for s in succs[unit]:
            first[found[s]] = min(s, first.get(found[s], s))
        for target in sorted(last.keys() & first.keys()):
            line = members[target]
            if target in closed or line[bisect_left(line, last[target]) + 1] != first[target]:
                continue
            members[own].remove(unit)
            insort(line, unit)
            found[unit] = target
            break
    return found


def fold_to(
    graph: TaskGraph, stream: Sequence[int], limit: int, fixed: Collection[int]
) -> list[int]:
    """At most ``limit`` streams: the least busy one joins the one it has most edges with.

    Streams in ``fixed`` (the user's) take others in and stay.
    """
    found = list(stream)
    while len(set(found)) > limit:
        busy: dict[int, float] = {}
        for task, s in enumerate(found):
            busy[s] = busy.get(s, 0.0) + graph.alone_us[task]
        loose = [s for s in busy if s not in fixed]
        if not loose:
            break
        leaving = min(loose, key=lambda s: (busy[s], s))
        edges: dict[int, int] = {s: 0 for s in busy if s != leaving}
        for task, s in enumerate(found):
            for p in graph.preds[task]:
                pair = {s, found[p]}
                if leaving in pair and len(pair) == 2:
                    edges[(pair - {leaving}).pop()] += 1
        home = min(edges, key=lambda s: (-edges[s], busy[s], s))
        found = [home if s == leaving else s for s in found]
    return found


def dense(stream: Sequence[int], fixed: Mapping[int, int]) -> list[int]:
    """Stream ids from 0 without holes, but the user's tasks keep the ids they were given.

    All tasks on a stream with a fixed task go to that id; two fixed ids on one stream split
    it. Other streams take the lowest free ids in order of their old ones.
    """
    home: dict[int, int] = {}
    for task, wanted in sorted(fixed.items()):
        home.setdefault(stream[task], wanted)
    taken = set(fixed.values())
    free = (i for i in range(len(stream) + len(taken) + 1) if i not in taken)
    for s in sorted(set(stream)):
        if s not in home:
            home[s] = next(free)
    return [fixed.get(task, home[s]) for task, s in enumerate(stream)]
