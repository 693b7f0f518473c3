"""Lower bounds of a problem's makespan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gecompiler.passes.streams.priorities import tails
from gecompiler.passes.streams.problem import EPSILON, Problem

MANY = 400
"""Up to this many tasks all pairs of thresholds are tried in `head_body_tail`."""


def makespan_bound(problem: Problem) -> float:
    """The highest of critical path and head-body-tail of each resource and of the processors.

    A whole number where all times are.
    """
    if not len(problem):
        return 0.0
    ahead = tails(problem)
    behind = [t - d for t, d in zip(tails(problem.reversed), problem.least, strict=True)]
    found = max(ahead)
    after = [t - d for t, d in zip(ahead, problem.least, strict=True)]
    for capacity, work in _resources(problem):
        found = max(found, head_body_tail(behind, work, after, capacity))
    if problem.processors:  # each task is followed by a gap, which may stick out at the end
        work = [time + problem.gap for time in problem.least]
        room = [tail - problem.gap for tail in after]
        found = max(found, head_body_tail(behind, work, room, problem.processors))
    return float(math.ceil(found - EPSILON)) if problem.is_integral else found


def _resources(problem: Problem) -> list[tuple[int, list[float]]]:
    """Capacity and the work of each task, for each resource."""
    found: list[tuple[int, list[float]]] = []
    for r, capacity in enumerate(problem.capacities):
        work = [
            problem.least[t] * math.fsum(amount for q, amount in demand if q == r)
            for t, demand in enumerate(problem.demands)
        ]
        if any(work):
            found.append((capacity, work))
    return found


def head_body_tail(
    head: Sequence[float], work: Sequence[float], tail: Sequence[float], capacity: float
) -> float:
    """Max over thresholds of: least head, work of the tasks past both over capacity, least tail.

    Carlier, The one-machine sequencing problem, EJOR 11, 1982, for capacities above one. All
    pairs of thresholds up to `MANY` tasks; above that, heads with no tail and the other way.
    """
    tasks = [t for t, w in enumerate(work) if w > 0]
    best = 0.0
    by_tail = sorted(tasks, key=lambda t: -tail[t])
    heads = sorted({head[t] for t in tasks}) if len(tasks) <= MANY else [0.0]
    for low in heads:
        total = 0.0
        for t in by_tail:
            if head[t] >= low:
                total += work[t]
                best = max(best, low + total / capacity + tail[t])
    if len(tasks) > MANY:
        total = 0.0
        for t in sorted(tasks, key=lambda t: -head[t]):
            total += work[t]
            best = max(best, head[t] + total / capacity)
    return best
