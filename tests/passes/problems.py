"""Scheduling problems for tests: a published one, random ones, and optima the slow way."""

from __future__ import annotations

import random
from itertools import product

from fakes import random_dag

from gecompiler.passes.streams.list_schedule import ListScheduler
from gecompiler.passes.streams.problem import Problem

# The example of Topcuoglu, Hariri, Wu (2002): HEFT gives 80; 73 is the optimum.
EXEC = (
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
)  # fmt: skip
EDGES = (
    (0, 1, 18), (0, 2, 12), (0, 3, 9), (0, 4, 11), (0, 5, 14), (1, 7, 19), (1, 8, 16), (2, 6, 23),
    (3, 7, 27), (3, 8, 23), (4, 8, 13), (5, 7, 15), (6, 9, 17), (7, 9, 11), (8, 9, 13),
)  # fmt: skip
TEN = Problem(EXEC, EDGES, processors=3)


def random_problem(seed: int, most: int = 9, *, streams: bool = True) -> Problem:
    """A few tasks with whole times, on processors, with resources, or both."""
    rng = random.Random(seed)
    count = rng.randint(1, most)
    kind = rng.choice(["project", "processors", "streams"] if streams else ["project"])
    processors = 0 if kind == "project" else rng.randint(1, 3)
    capacities = () if kind == "processors" else tuple(rng.randint(1, 4) for _ in range(2))
    columns = max(1, processors)
    rows = []
    for _ in range(count):
        same = rng.randint(0, 6)
        rows.append(
            tuple(rng.randint(1, 6) if kind == "processors" else same for _ in range(columns))
        )
    return Problem(
        tuple(rows),
        tuple((a, b, rng.randint(0, 4)) for a, b in random_dag(rng, count, rng.random() * 0.5)),
        processors,
        tuple(
            tuple((r, rng.randint(1, c)) for r, c in enumerate(capacities) if rng.random() < 0.7)
            for _ in range(count)
        ),
        capacities,
        gap=rng.randint(0, 1) if processors else 0,
    )


def brute_force(problem: Problem) -> float:
    """The least makespan over all orders and processors, serially generated.

    Complete: some order and choice give an active optimal plan of the serial scheme.
    """
    scheduler = ListScheduler(problem)
    best = float("inf")
    choices = [c or (-1,) for c in problem.choices]
    for order in orders(problem):
        for choice in product(*choices):
            best = min(best, scheduler.serial(order, choice).makespan)
    return best


def orders(problem: Problem, done: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if len(done) == len(problem):
        return [done]
    free = [
        t
        for t in range(len(problem))
        if t not in done and all(p in done for p, _ in problem.preds[t])
    ]
    return [order for t in free for order in orders(problem, (*done, t))]
