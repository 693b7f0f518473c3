"""Priority rules for list scheduling; the highest value goes first."""

from __future__ import annotations

import math
from collections.abc import Callable

from gecompiler.passes.streams.list_schedule import upward
from gecompiler.passes.streams.problem import Problem

MANY = 3_000
"""From this many tasks on successors are no longer counted through."""


def tails(problem: Problem) -> list[float]:
    """The longest path from each task's start, in shortest times (hence the latest start)."""
    found = [0.0] * len(problem)
    for task in reversed(problem.topological):
        ahead = max((found[s] + problem.step(lag) for s, lag in problem.succs[task]), default=0.0)
        found[task] = problem.least[task] + ahead
    return found


def latest_finish(problem: Problem) -> list[float]:
    """The longest path from each task's end: minimum latest finish time."""
    return [t - d for t, d in zip(tails(problem), problem.least, strict=True)]


def total_successors(problem: Problem) -> list[float]:
    """How many tasks come after each, directly or not; the direct ones in large problems."""
    if len(problem) > MANY:
        return [float(len(s)) for s in problem.succs]
    after = [0] * len(problem)
    for task in reversed(problem.topological):
        for s, _ in problem.succs[task]:
            after[task] |= after[s] | 1 << s
    return [float(bits.bit_count()) for bits in after]


def positional_weight(problem: Problem) -> list[float]:
    """Own time and that of the direct successors (greatest rank positional weight)."""
    least = problem.least
    return [
        least[t] + math.fsum(least[s] for s, _ in after) for t, after in enumerate(problem.succs)
    ]


def resource_weighted(problem: Problem) -> list[float]:
    """Longest path, scarce resources counted in: time times the largest share asked for."""
    share = [
        max((amount / problem.capacities[r] for r, amount in demand), default=0.0)
        for demand in problem.demands or ((),) * len(problem)
    ]
    found = [0.0] * len(problem)
    for task in reversed(problem.topological):
        ahead = max((found[s] for s, _ in problem.succs[task]), default=0.0)
        found[task] = problem.least[task] * (0.5 + share[task]) + ahead
    return found


RULES: tuple[Callable[[Problem], list[float]], ...] = (
    upward,
    latest_finish,
    tails,
    total_successors,
    positional_weight,
    resource_weighted,
)
"""Rules worth trying, the most useful first."""
