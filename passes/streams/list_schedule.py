"""List scheduling of a `Problem` by serial schedule generation; HEFT.

Serial: Kolisch, Serial and parallel resource-constrained project scheduling methods revisited,
EJOR 90, 1996; with processors chosen by the earliest finish, idle slots used: Topcuoglu, Hariri,
Wu, IEEE TPDS 13(3), 2002 (HEFT).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence

from gecompiler.passes.streams.problem import EPSILON, Plan, Problem
from gecompiler.passes.streams.profile import Packing, Profile


class ListScheduler:
    """Makes plans of one problem from task orders and processor choices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.packing = Packing(problem)
        self._times = [row[0] for row in problem.durations]
        self._befores = [tuple(p for p, _ in row) for row in problem.preds]

    def serial(self, order: Sequence[int], choice: Sequence[int] = ()) -> Plan:
        """Each task in turn as early as possible; predecessors come first in ``order``.

        ``choice[t]`` is the processor to take, -1 for the one on which it ends first.
        """
        if self.problem.processors:
            return self._on_processors(order, choice)
        return self._on_resources(order)

    def _on_resources(self, order: Sequence[int]) -> Plan:
        profile = Profile(self.packing)
        needs, times, befores = self.packing.needs, self._times, self._befores
        start = [0.0] * len(times)
        end = [0.0] * len(times)
        for task in order:
            ready = 0.0
            for before in befores[task]:
                ready = max(ready, end[before])
            duration, need = times[task], needs[task]
            if need and duration > 0:
                ready = profile.earliest(ready, duration, need)
                profile.take(ready, duration, need)
            start[task] = ready
            end[task] = ready + duration
        return Plan(tuple(start), (-1,) * len(times), max(end, default=0.0))

    def _on_processors(self, order: Sequence[int], choice: Sequence[int]) -> Plan:
        problem = self.problem
        profile = Profile(self.packing) if problem.capacities else None
        busy: list[list[tuple[float, float]]] = [[] for _ in range(problem.processors)]
        start = [0.0] * len(problem)
        end = [0.0] * len(problem)
        home = [-1] * len(problem)
        for task in order:
            wanted = choice[task] if choice else -1
            open_ = problem.choices[task] if wanted < 0 else (wanted,)
            best = (float("inf"), -1, 0.0)
            arrivals = [(end[b], home[b], lag) for b, lag in problem.preds[task]]
            for p in open_:
                ready = 0.0
                for done, where, lag in arrivals:
                    at = done if where == p else done + lag
                    ready = max(ready, at)
                duration = problem.durations[task][p]
                if ready + duration >= best[0]:
                    continue
                begin = self._fit(busy[p], profile, task, ready, duration)
                if begin + duration < best[0] - EPSILON:
                    best = (begin + duration, p, begin)
            end[task], home[task], start[task] = best
            insort(busy[home[task]], (start[task], end[task]))
            if profile is not None:
                profile.take(start[task], end[task] - start[task], self.packing.needs[task])
        return Plan(tuple(start), tuple(home), max(end, default=0.0))

    def _fit(
        self,
        busy: list[tuple[float, float]],
        profile: Profile | None,
        task: int,
        ready: float,
        duration: float,
    ) -> float:
        """The earliest start on a processor that is free then, with the resources free too."""
        need = self.packing.needs[task]
        while True:
            begin = _slot(busy, ready, duration, self.problem.gap)
            if profile is None or not need or duration <= EPSILON:
                return begin
            ready = profile.earliest(begin, duration, need)
            if ready <= begin + EPSILON:
                return begin


def _slot(busy: list[tuple[float, float]], ready: float, duration: float, gap: float) -> float:
    """The earliest start in an idle slot of a processor, a gap away from its neighbours."""
    i = bisect_right(busy, (ready, float("inf")))
    if i and busy[i - 1][1] + gap > ready:
        ready = busy[i - 1][1] + gap
    while i < len(busy) and ready + duration + gap > busy[i][0] + EPSILON:
        ready = max(ready, busy[i][1] + gap)
        i += 1
    return ready


def order_of(problem: Problem, priority: Sequence[float]) -> list[int]:
    """All tasks, predecessors first, of those that may come next the one of highest priority."""
    import heapq

    waiting = [len(p) for p in problem.preds]
    ready = [(-priority[t], t) for t, n in enumerate(waiting) if not n]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        task = heapq.heappop(ready)[1]
        order.append(task)
        for after, _ in problem.succs[task]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (-priority[after], after))
    return order


def heft(problem: Problem) -> Plan:
    """The plan of HEFT: by upward rank, on the processor of earliest finish, slots used."""
    return ListScheduler(problem).serial(order_of(problem, upward(problem)))


def upward(problem: Problem) -> list[float]:
    """Upward ranks: mean durations and the edges' times on the longest path to the end."""
    rank = [0.0] * len(problem)
    for task in reversed(problem.topological):
        choice = problem.choices[task]
        row = problem.durations[task]
        mean = math.fsum(row[p] for p in choice) / len(choice) if choice else row[0]
        rank[task] = mean + max((lag + rank[s] for s, lag in problem.succs[task]), default=0.0)
    return rank
