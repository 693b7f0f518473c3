"""What it costs at least that a task's successors run side by side, and meet again.

Between two tasks of a path, c_i with several successors and c_j with several predecessors, some
of what lies between pays for events. Of c_i's successors at most one is next on its stream;
then it pays the gap and, as c_i records an event for the others, the record. The others, and
all of them where none is next, wait for an event. Only where all others run after the one that
is next does c_i record nothing; then they start after that one has ended. The same, turned
round, holds for c_j's predecessors and its waits. The cheapest of these choices is the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph

MOST_TASKS = 64
MOST_BRANCHES = 6
"""Larger stretches and wider forks are left to the other bounds."""


@dataclass(frozen=True)
class SyncCosts:
    """Least times between two tasks: of one stream, by an event, and the event's parts."""

    gap: float
    event: float
    record: float
    wait: float

    @staticmethod
    def of(target: Target) -> SyncCosts:
        """The device's; where it does not tell record and wait apart they count as nothing."""
        return SyncCosts(
            target.task_gap_us,
            target.event_us,
            float(getattr(target, "event_record_us", 0.0)),
            float(getattr(target, "event_wait_us", 0.0)),
        )

    @property
    def step(self) -> float:
        """The least time between two dependent tasks."""
        return min(self.gap, self.event)

    @property
    def fork(self) -> float:
        """The least time to a successor when an event is recorded, or another task is between."""
        return min(self.event, self.gap + self.record, self.gap + self.step)

    @property
    def join(self) -> float:
        """The same from a predecessor when an event is waited for."""
        return min(self.event, self.gap + self.wait, self.gap + self.step)


@dataclass(frozen=True)
class Stretch:
    """From one position of the path to another: how much longer it takes than the path says."""

    low: int
    high: int
    excess: float


class ForkJoin:
    """Stretches of a path that begin at a fork. ``place``, ``low``, ``high`` as in `_Line`."""

    def __init__(
        self,
        graph: TaskGraph,
        costs: SyncCosts,
        path: Sequence[int],
        place: Sequence[int],
        low: Sequence[int],
        high: Sequence[int],
    ) -> None:
        self.graph = graph
        self.costs = costs
        self.path = path
        self.place = place
        self.low = low
        self.high = high

    def stretches(self, width: int) -> Iterator[Stretch]:
        """One for each fork on the path whose branches meet again within ``width``."""
        for at, task in enumerate(self.path, 1):
            ends = [
                self.place[s] + 1 if self.place[s] else self.high[s] for s in self.graph.succs[task]
            ]
            near = [e for e in ends if e - at <= width and e <= len(self.path)]
            if len(near) < 2:
                continue
            found = self._stretch(at, max(near))
            if found > 0.0:
                yield Stretch(at, max(near), found)

    def _inside(self, task: int, low: int, high: int) -> bool:
        place = self.place[task]
        if place:
            return low < place < high
        return self.low[task] >= low and self.high[task] <= high

    def _stretch(self, low: int, high: int) -> float:
        graph = self.graph
        fork, join = self.path[low - 1], self.path[high - 1]
        first = [s for s in graph.succs[fork] if self._inside(s, low, high)]
        last = [p for p in graph.preds[join] if self._inside(p, low, high)]
        if not first or not last or max(len(first), len(last)) > MOST_BRANCHES:
            return 0.0
        rows: list[dict[int, float]] = []
        for task in first:
            reached = self._distances(task, low, high)
            if reached is None:
                return 0.0
            rows.append({z: reached[z] for z in last if z in reached})
        begins = self._scenarios(first, self.costs.fork)
        ends = self._scenarios(last, self.costs.join)
        best = min(
            max(
                (
                    begin[i] + d + end[last.index(z)]
                    for i, row in enumerate(rows)
                    for z, d in row.items()
                ),
                default=0.0,
            )
            for begin in begins
            for end in ends
        )
        return best - self._path_time(low, high)

    def _path_time(self, low: int, high: int) -> float:
        inner = self.path[low : high - 1]
        return math.fsum(self.graph.alone_us[t] for t in inner) + self.costs.step * (len(inner) + 1)

    def _scenarios(self, tasks: Sequence[int], beside: float) -> list[list[float]]:
        """Times to (from) each of the tasks: events for all, or all others after (before) one."""
        step = self.costs.step
        if len(tasks) == 1:
            return [[step]]
        found = [[max(beside, step)] * len(tasks)]
        for one, task in enumerate(tasks):
            later = 2 * step + self.graph.alone_us[task]
            found.append([step if i == one else later for i in range(len(tasks))])
        return found

    def _distances(self, start: int, low: int, high: int) -> dict[int, float] | None:
        """The longest way from a task's start to each task's end, within the stretch."""
        order = [start]
        seen = {start}
        for task in order:
            for after in self.graph.succs[task]:
                if after not in seen and self._inside(after, low, high):
                    seen.add(after)
                    order.append(after)
            if len(order) > MOST_TASKS:
                return None
        alone, step = self.graph.alone_us, self.costs.step
        far = {start: alone[start]}
        for task in sorted(order):
            for after in self.graph.succs[task]:
                if after in seen:
                    way = far[task] + step + alone[after]
                    far[after] = max(far.get(after, 0.0), way)
        return far
