"""Simulated annealing of task order and processors, where these differ or are far apart.

Kirkpatrick, Gelatt, Vecchi: Optimization by simulated annealing, Science 220, 1983. A state is an
order with predecessors first and a processor for each task; every task starts as soon as its
data and its processor allow, behind those before it in the order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from gecompiler.passes.streams.problem import Problem

HOT, COLD = 0.04, 0.0005
"""The temperature at the beginning and at the end, as shares of the makespan."""


class Annealer:
    """Anneals plans of one problem with processors and without other resources."""

    def __init__(self, problem: Problem, rng: random.Random) -> None:
        self.problem = problem
        self.random = rng
        self.before = [[p for p, _ in row] for row in problem.preds]
        self.after = [[s for s, _ in row] for row in problem.succs]

    def makespan(self, order: Sequence[int], choice: Sequence[int]) -> float:
        """The time of a state. O(tasks + edges)."""
        problem, gap = self.problem, self.problem.gap
        durations, preds = problem.durations, problem.preds
        free = [0.0] * problem.processors
        end = [0.0] * len(durations)
        for task in order:
            home = choice[task]
            ready = free[home]
            for other, lag in preds[task]:
                arrival = end[other] if choice[other] == home else end[other] + lag
                ready = max(ready, arrival)
            end[task] = done = ready + durations[task][home]
            free[home] = done + gap
        return max(end)

    def anneal(
        self, order: Sequence[int], choice: Sequence[int], runs: int, over: Callable[[], bool]
    ) -> tuple[list[int], list[int]]:
        """The best state met in so many steps, fewer when ``over`` says so."""
        state, home = list(order), list(choice)
        now = best = self.makespan(state, home)
        found = (state.copy(), home.copy())
        heat = HOT * best
        cooling = (COLD / HOT) ** (1.0 / max(1, runs))
        for step in range(runs):
            if not step % 64 and over():
                break
            undo = self._move(state, home)
            time = self.makespan(state, home)
            if time <= now or self.random.random() < math.exp((now - time) / heat):
                now = time
                if now < best:
                    best, found = now, (state.copy(), home.copy())
            else:
                undo()
            heat *= cooling
        return found

    def _move(self, order: list[int], choice: list[int]) -> Callable[[], None]:
        """Moves a task in the order, to another processor, or both; returns how to undo it."""
        at = self.random.randrange(len(order))
        task, was = order[at], choice[order[at]]
        draw = self.random.random()
        to = at if draw < 0.35 else self._place(order, at)
        if draw < 0.7:
            choice[task] = self._processor(task, was, choice)
        order.insert(to, order.pop(at))

        def undo() -> None:
            choice[task] = was
            order.insert(at, order.pop(to))

        return undo

    def _processor(self, task: int, was: int, choice: list[int]) -> int:
        """Any processor, or that of a neighbour in the graph."""
        near = self.before[task] + self.after[task]
        allowed = self.problem.choices[task]
        if near and self.random.random() < 0.5:
            home = choice[self.random.choice(near)]
            if home in allowed:
                return home
        return self.random.choice(allowed)

    def _place(self, order: list[int], at: int) -> int:
        """A place between the last predecessor and the first successor."""
        task = order[at]
        before, after = self.before[task], self.after[task]
        low, high = at, at
        while low > 0 and order[low - 1] not in before:
            low -= 1
        while high < len(order) - 1 and order[high + 1] not in after:
            high += 1
        return self.random.randint(low, high)
