"""A lower bound from a chain of tasks: what lies between two of them runs between them.

Take any path c1, c2, ... of the task graph, here the critical one. Whatever comes after c_i and
before c_j runs after c_i has ended and before c_j starts. If the work of these tasks on some
resource takes longer than the path from c_i to c_j leaves for it, the makespan is longer than
the path by that much; excesses of stretches that do not overlap add up. The best set of
stretches is found by dynamic programming.

A stretch's bound is head-body-tail (Carlier, EJOR 11, 1982): no work on the resource before the
least head, none after the least tail. Heads and tails are measured along the path: a task's
head is the time from the last path task before it, and its tail that to the first one after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph, capacity_of
from gecompiler.passes.streams.fork_join import ForkJoin, Stretch, SyncCosts
from gecompiler.passes.streams.ranks import upward_ranks

WIDTH = 48
"""The longest stretch looked at, in steps of the path."""

STREAMS, SYNCS = "streams", "events"

SYNCED = -2

Row = NDArray[np.float64]


@dataclass(frozen=True)
class SegmentBound:
    """The bound in us, and how much of it each resource adds to the path."""

    us: float
    excess: Mapping[str, float]

    @property
    def binding(self) -> str:
        """What adds most; the path itself when nothing adds anything."""
        return min(self.excess, key=lambda r: (-self.excess[r], r), default="critical_path")


def segment_bound(graph: TaskGraph, target: Target, streams: int) -> SegmentBound:
    """The bound for any placement on at most that many streams. O(E + tasks * WIDTH)."""
    if not len(graph):
        return SegmentBound(0.0, {})
    costs = SyncCosts.of(target)
    line = _Line(graph, costs.step)
    branches = ForkJoin(graph, costs, line.path, line.place, line.low, line.high)
    return _best_stretches(
        line, _works(graph, target, streams), {s.low: s for s in branches.stretches(WIDTH)}
    )


@dataclass(frozen=True)
class _Works:
    """Per resource: the time of each task's work on it, and how far it may stick out."""

    names: list[str]
    us: list[dict[int, float]]
    """By task: time on each resource, at its full capacity."""
    fixed: list[float]
    """By task: time at its start without any work."""
    gap: float


def _works(graph: TaskGraph, target: Target, streams: int) -> _Works:
    capacities = target.capacities()
    number = {STREAMS: 0}
    found: list[dict[int, float]] = []
    for task, alone in zip(graph.tasks, graph.alone_us, strict=True):
        row = {0: (alone + target.task_gap_us) / streams}
        for resource, amount in target.work(task.demand).items():
            if amount > 0:
                at = number.setdefault(resource, len(number))
                row[at] = amount / capacity_of(resource, capacities)
        found.append(row)
    fixed = [
        min(task.demand.fixed_us, alone)
        for task, alone in zip(graph.tasks, graph.alone_us, strict=True)
    ]
    return _Works(list(number), found, fixed, target.task_gap_us)


class _Line:
    """The critical path, and where each task lies along it.

    Positions are 1..k; 0 and k + 1 stand for the beginning and the end of all. ``low`` and
    ``high`` are the last position before a task and the first one after it. ``head`` and
    ``tail`` are instants on the path's clock: no task starts before the one, and whatever is
    after it needs the time from the other on.
    """

    def __init__(self, graph: TaskGraph, step: float) -> None:
        self.step = step
        self.alone = graph.alone_us
        self.path = _critical_path(graph, step)
        self.count = len(self.path)
        self.place = [0] * len(graph)
        self.begin = [0.0] * (self.count + 2)
        self.end = [0.0] * (self.count + 2)
        for i, task in enumerate(self.path, 1):
            self.place[task] = i
            self.begin[i] = self.end[i - 1] + (step if i > 1 else 0.0)
            self.end[i] = self.begin[i] + self.alone[task]
        self.begin[-1] = self.end[-1] = self.end[self.count]
        self.low, ahead = self._walk(range(len(graph)), graph.preds, 0)
        self.high, behind = self._walk(range(len(graph) - 1, -1, -1), graph.succs, self.count + 1)
        self.head = [self.end[low] + d for low, d in zip(self.low, ahead, strict=True)]
        self.tail = [self.begin[high] - d for high, d in zip(self.high, behind, strict=True)]

    def _walk(
        self, order: Sequence[int] | range, near: Sequence[Sequence[int]], edge: int
    ) -> tuple[list[int], list[float]]:
        """The nearest path position on one side of each task, and the distance from it."""
        nearest = max if edge == 0 else min
        at = [edge] * len(near)
        far = [0.0] * len(near)
        for task in order:
            found = edge
            for other in near[task]:
                found = nearest(found, self.place[other] or at[other])
            distance = 0.0
            for other in near[task]:
                if self.place[other]:
                    if self.place[other] == found:
                        distance = max(distance, self.step)
                elif at[other] == found:
                    distance = max(distance, far[other] + self.alone[other] + self.step)
            at[task], far[task] = found, distance
        return at, far


def _critical_path(graph: TaskGraph, step: float) -> list[int]:
    rank = upward_ranks(graph.succs, graph.alone_us, step)
    task = max(range(len(graph)), key=lambda t: (rank[t], -t))
    path = [task]
    while graph.succs[task]:
        task = max(graph.succs[task], key=lambda t: (rank[t], -t))
        path.append(task)
    return path


def _best_stretches(line: _Line, works: _Works, forks: Mapping[int, Stretch]) -> SegmentBound:
    """Dynamic programming from the path's end: what each position can still add."""
    by_low: list[list[int]] = [[] for _ in range(line.count + 2)]
    for task, low in enumerate(line.low):
        if line.high[task] - low <= WIDTH:
            by_low[low].append(task)
    table = _Table(line, works)
    gain = np.zeros(line.count + 2)
    choice: list[tuple[int, int]] = [(0, -1)] * (line.count + 2)
    side_by_side = line.count + 2 + WIDTH
    for low in range(line.count, -1, -1):
        table.add(low, by_low[low])
        gain[low] = gain[low + 1]
        choice[low] = (low + 1, -1)
        fork = forks.get(low)
        if fork is not None and gain[fork.high] + fork.excess > gain[low]:
            gain[low] = gain[fork.high] + fork.excess
            choice[low] = (fork.high, SYNCED)
        if len(by_low[low]) > 1:
            side_by_side = low
        if side_by_side - low > WIDTH:
            continue  # the path alone never exceeds what it leaves
        excess = table.excess(low)
        total = excess.max(axis=0) + gain[low + 1 : low + 1 + WIDTH]
        jump = int(total.argmax())
        if total[jump] > gain[low]:
            gain[low] = total[jump]
            choice[low] = (low + 1 + jump, int(excess[:, jump].argmax()))
    added: dict[str, float] = {}
    at = 0
    while at <= line.count:
        after, resource = choice[at]
        if resource != -1:
            name = SYNCS if resource == SYNCED else works.names[resource]
            added[name] = added.get(name, 0.0) + float(gain[at] - gain[after])
        at = after
    return SegmentBound(line.begin[-1] + float(gain[0]), added)


class _Table:
    """Work, least head and last tail by resource, of stretches from one position to each later one.

    The columns are the right ends. As the left end moves back, tasks are added to all stretches
    that hold them; right ends further than `WIDTH` away are left behind.
    """

    def __init__(self, line: _Line, works: _Works) -> None:
        self.line = line
        self.works = works
        shape = (len(works.names), line.count + 2)
        self.work = np.zeros(shape)
        self.head = np.full(shape, np.inf)
        self.tail = np.full(shape, -np.inf)

    def add(self, low: int, tasks: Sequence[int]) -> None:
        """Moves the left end to ``low``; the tasks are those that come right after it."""
        for task in tasks:
            ends = slice(self.line.high[task], low + 1 + WIDTH)
            head, tail = self.line.head[task], self.line.tail[task]
            for resource, us in self.works.us[task].items():
                stream = resource == 0
                self.work[resource, ends] += us
                row = self.head[resource, ends]
                np.minimum(row, head if stream else head + self.works.fixed[task], out=row)
                row = self.tail[resource, ends]
                np.maximum(row, tail + self.works.gap if stream else tail, out=row)

    def excess(self, low: int) -> Row:
        """How much longer the work of each stretch from ``low`` takes than the path leaves."""
        ends = slice(low + 1, low + 1 + WIDTH)
        work = self.work[:, ends]
        room = np.where(work > 0, self.tail[:, ends] - self.head[:, ends], 0.0)
        found: Row = np.maximum(work - room, 0.0)
        return found
