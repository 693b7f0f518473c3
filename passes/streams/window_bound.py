"""A lower bound from each resource: heads, work and tails of all tasks together.

For any set of tasks, no work on a resource can be done before the least head, and after the last
of it the least tail is still to come, so that the makespan is at least head + work + tail. The
best set is found by the preemptive one-machine schedule: the released task of longest tail first
(Carlier, The one-machine sequencing problem, EJOR 11, 1982; Jackson's preemptive rule). Tasks
that share a resource fluidly do no more of it per time than one that has all of it, so that the
bound holds for them as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph, capacity_of
from gecompiler.passes.streams.ranks import upward_ranks

Row = tuple[float, float, float]
"""Head, work and tail, in us."""


def window_rows(graph: TaskGraph, target: Target, streams: int) -> dict[str, list[Row]]:
    """Every task's head, work and tail on each resource, and on that many ``streams``."""
    step = min(target.task_gap_us, target.event_us)
    after = upward_ranks(graph.succs, graph.alone_us, step)
    before = heads(graph, step)
    capacities = target.capacities()
    lanes = min(streams, max(1, len(graph)))
    rows: dict[str, list[Row]] = {"streams": []}
    for task, alone in zip(graph.tasks, graph.alone_us, strict=True):
        head, tail = before[task.id], after[task.id] - alone
        start = head + min(task.demand.fixed_us, alone)
        for resource, amount in target.work(task.demand).items():
            if amount > 0:
                work = amount / capacity_of(resource, capacities)
                rows.setdefault(resource, []).append((start, work, tail))
        # A gap follows each task, and may stick out at the end.
        held = alone + target.task_gap_us
        rows["streams"].append((head, held / lanes, tail - target.task_gap_us))
    return dict(sorted(rows.items()))


def heads(graph: TaskGraph, step: float) -> list[float]:
    """The earliest start of each task: the longest path to it, ``step`` between two tasks."""
    found: list[float] = []
    for before in graph.preds:
        found.append(max((found[p] + graph.alone_us[p] + step for p in before), default=0.0))
    return found


def one_machine(rows: Iterable[Row]) -> float:
    """The least makespan of preemptive tasks (head, work, tail) on one machine. O(n log n)."""
    todo = sorted(rows)
    ready: list[tuple[float, float]] = []
    now = best = 0.0
    for i, (head, work, tail) in enumerate(todo):
        now = max(now, head)
        heapq.heappush(ready, (-tail, work))
        until = todo[i + 1][0] if i + 1 < len(todo) else float("inf")
        while ready and now < until:
            longest, left = heapq.heappop(ready)
            if now + left > until:
                heapq.heappush(ready, (longest, left - (until - now)))
                now = until
            else:
                now += left
                best = max(best, now - longest)
    return best
