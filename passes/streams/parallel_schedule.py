"""List scheduling of a `Problem` by parallel schedule generation: time runs forward.

Kolisch, Serial and parallel resource-constrained project scheduling methods revisited, EJOR 90,
1996. At each instant those tasks start that can, the one of highest priority first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from gecompiler.passes.streams.problem import EPSILON, Plan, Problem
from gecompiler.passes.streams.profile import Packing, Profile


def parallel(problem: Problem, packing: Packing, priority: Sequence[float]) -> Plan:
    """The plan by these priorities; a task takes the free processor on which it ends first."""
    run = _Run(problem, packing, priority)
    while run.eligible:
        run.step()
    return Plan(tuple(run.start), tuple(run.home), max(run.end, default=0.0))


class _Run:
    def __init__(self, problem: Problem, packing: Packing, priority: Sequence[float]) -> None:
        count = len(problem)
        self.problem = problem
        self.needs = packing.needs
        self.profile = Profile(packing)
        self.order = sorted(range(count), key=lambda t: (-priority[t], t))
        self.rank = [0] * count
        for place, task in enumerate(self.order):
            self.rank[task] = place
        self.waiting = [len(p) for p in problem.preds]
        self.eligible = sorted(self.rank[t] for t, n in enumerate(self.waiting) if not n)
        self.free = [0.0] * problem.processors
        self.start, self.end, self.home = [0.0] * count, [0.0] * count, [-1] * count
        self.moments = [0.0]

    def step(self) -> None:
        """Starts all that can start at the next instant."""
        now = self.moments.pop(0)
        while self.moments and self.moments[0] <= now + EPSILON:
            self.moments.pop(0)
        more = True
        while more:  # a task without duration makes its successors eligible at once
            started = [place for place in self.eligible if self._tried(self.order[place], now)]
            for place in started:
                self.eligible.remove(place)
            for place in started:
                self._release(self.order[place])
            more = bool(started)

    def _tried(self, task: int, now: float) -> bool:
        processor, ready = self._where(task, now)
        if ready > now + EPSILON:
            insort(self.moments, ready)
            return False
        duration = self.problem.durations[task][max(0, processor)]
        need = self.needs[task] if duration > EPSILON else 0
        if need and self.profile.earliest(now, duration, need) > now + EPSILON:
            return False
        self.profile.take(now, duration, self.needs[task])
        self.start[task], self.end[task], self.home[task] = now, now + duration, processor
        insort(self.moments, now + duration)
        if processor >= 0:
            self.free[processor] = now + duration + self.problem.gap
        return True

    def _where(self, task: int, now: float) -> tuple[int, float]:
        """The processor on which the task would end first, and when it could start there."""
        problem = self.problem
        if not problem.processors:
            return -1, max((self.end[b] for b, _ in problem.preds[task]), default=0.0)
        best = (float("inf"), -1, 0.0)
        for p in problem.choices[task]:
            ready = max(now, self.free[p])
            for before, lag in problem.preds[task]:
                ready = max(ready, self.end[before] + (0.0 if self.home[before] == p else lag))
            best = min(best, (ready + problem.durations[task][p], p, ready))
        return best[1], best[2]

    def _release(self, task: int) -> None:
        for after, _ in self.problem.succs[task]:
            self.waiting[after] -= 1
            if not self.waiting[after]:
                insort(self.eligible, self.rank[after])
