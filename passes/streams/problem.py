"""Scheduling problems in the abstract: tasks, orders, processors, renewable resources.

One record for what the literature treats apart, and for tasks on streams at fixed rates:

- heterogeneous processors with communication (HEFT): a duration per processor, a time per edge
  that is zero within a processor;
- resource-constrained projects (RCPSP): no processors, resources with capacities;
- identical processors: one resource of which each task takes one unit;
- streams: identical processors with a gap between tasks, an event's time per edge, and the
  shares of the device's resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gecompiler.ir.errors import ScheduleError

EPSILON = 1e-9


@dataclass(frozen=True)
class Problem:
    """Tasks 0..n-1. Find start times of least makespan.

    ``durations[t][p]`` is the time of task t on processor p; one column where there are no
    processors. ``edges`` are (before, after, time between them on different processors).
    ``demands[t]`` are (resource, amount) pairs, amounts and ``capacities`` whole numbers.
    ``allowed[t]``, where given and not empty, are the processors the task may be on. ``gap`` is
    the least time between two tasks of a processor.
    """

    durations: tuple[tuple[float, ...], ...]
    edges: tuple[tuple[int, int, float], ...]
    processors: int = 0
    demands: tuple[tuple[tuple[int, int], ...], ...] = ()
    capacities: tuple[int, ...] = ()
    allowed: tuple[tuple[int, ...], ...] = ()
    gap: float = 0.0

    def __len__(self) -> int:
        return len(self.durations)

    def __post_init__(self) -> None:
        for task, demand in enumerate(self.demands):
            for resource, amount in demand:
                if amount > self.capacities[resource]:
                    raise ScheduleError(
                        f"task {task} needs {amount} of resource {resource}, "
                        f"there are {self.capacities[resource]}"
                    )
        if len(self.topological) < len(self):
            raise ScheduleError("the orders of the problem form a cycle")

    @cached_property
    def preds(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """(predecessor, time) of each task."""
        return _grouped(len(self), ((b, a, c) for a, b, c in self.edges))

    @cached_property
    def succs(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """(successor, time) of each task."""
        return _grouped(len(self), self.edges)

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """The tasks, predecessors first."""
        waiting = [len(p) for p in self.preds]
        order = [t for t, n in enumerate(waiting) if not n]
        for task in order:
            for after, _ in self.succs[task]:
                waiting[after] -= 1
                if not waiting[after]:
                    order.append(after)
        return tuple(order)

    @cached_property
    def reversed(self) -> Problem:
        """The same with time running backwards."""
        return Problem(
            self.durations,
            tuple((b, a, c) for a, b, c in self.edges),
            self.processors,
            self.demands,
            self.capacities,
            self.allowed,
            self.gap,
        )

    @cached_property
    def least(self) -> tuple[float, ...]:
        """The shortest time of each task."""
        return tuple(
            min(row[p] for p in choice) if choice else min(row)
            for row, choice in zip(self.durations, self.choices, strict=True)
        )

    def step(self, lag: float) -> float:
        """The least time along an edge: the gap of one processor, or the lag between two."""
        return min(self.gap, lag) if self.processors else 0.0

    @cached_property
    def choices(self) -> tuple[tuple[int, ...], ...]:
        """The processors that each task may be on; none where there are no processors."""
        every = tuple(range(self.processors))
        if not self.allowed:
            return (every,) * len(self)
        return tuple(some or every for some in self.allowed)

    @cached_property
    def is_integral(self) -> bool:
        """Whether all times are whole numbers, and with them the best makespan."""
        times = [d for row in self.durations for d in row] + [c for _, _, c in self.edges]
        return all(float(t).is_integer() for t in (*times, self.gap))


def _grouped(
    count: int, rows: Iterable[tuple[int, int, float]]
) -> tuple[tuple[tuple[int, float], ...], ...]:
    found: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    for a, b, c in rows:
        found[a].append((b, c))
    return tuple(tuple(row) for row in found)


@dataclass(frozen=True)
class Plan:
    """Start times and processors (-1 where there are none)."""

    start: tuple[float, ...]
    processor: tuple[int, ...]
    makespan: float

    def end(self, problem: Problem, task: int) -> float:
        """When a task is done."""
        return self.start[task] + problem.durations[task][max(0, self.processor[task])]

    def faults(self, problem: Problem) -> list[str]:
        """What is wrong with the plan, found the slow way; for tests and benchmarks."""
        ends = [self.end(problem, t) for t in range(len(problem))]
        found = [f"{t} starts before time 0" for t, s in enumerate(self.start) if s < -EPSILON]
        for a, b, c in problem.edges:
            lag = c if self.processor[a] != self.processor[b] else 0.0
            if ends[a] + lag > self.start[b] + EPSILON:
                found.append(f"{b} starts before {a} has ended")
        for p in range(problem.processors):
            on = sorted((self.start[t], ends[t], t) for t, q in enumerate(self.processor) if q == p)
            for (_, end, a), (start, _, b) in pairwise(on):
                if end + problem.gap > start + EPSILON:
                    found.append(f"{a} and {b} overlap on processor {p}")
        for r, capacity in enumerate(problem.capacities):
            for moment in self.start:
                used = math.fsum(
                    amount
                    for t, demand in enumerate(problem.demands)
                    for q, amount in demand
                    if q == r and self.start[t] <= moment + EPSILON < ends[t] - EPSILON
                )
                if used > capacity:
                    found.append(f"{used:g} of {capacity} of resource {r} in use at {moment}")
        if abs(max(ends, default=0.0) - self.makespan) > EPSILON:
            found.append(f"the makespan is {max(ends, default=0.0)}, not {self.makespan}")
        return found
