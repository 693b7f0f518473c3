"""What to store behind which kernel, so that it pays.

A kernel's last stores come after its computing, and hold its stream. Kept on chip, the result
can be written by a task of its own, on another stream, while the next kernels run. That pays
where nobody needs the result soon: a graph's output, a new state of the KV cache, a residual.
Four things bound it: the result must fit the on-chip memory that loads ahead may fill as well;
it leaves the chip before the next one comes; until its first user the memory bandwidth must
have time to spare for it; and the kernel must become shorter by more than the syncs cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import accumulate

from gecompiler.ir.schedule import Task
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.strategy import StrategyContext

WORTH_EVENTS = 3.0
"""A kernel must become shorter by this many syncs: its store needs two, and slows others."""


@dataclass(frozen=True, slots=True)
class Store:
    """A kernel whose result is written by a task of its own, and who must make room before it."""

    kernel: int
    room_after: int | None
    """The kernel whose store must be done before this one may keep its result on chip."""


def stores_behind(graph: TaskGraph, context: StrategyContext, busy: Collection[int]) -> list[Store]:
    """The stores worth a task of their own, in the order of their kernels. Near-linear.

    ``busy`` are kernels that have a load ahead, which holds the on-chip memory as well.
    """
    return _Writeback(graph, context, busy).run()


class _Writeback:
    def __init__(self, graph: TaskGraph, context: StrategyContext, busy: Collection[int]) -> None:
        self.graph, self.context, self.busy = graph, context, busy
        target = context.target
        self.rate = target.capacities()["hbm"]
        self.budget = target.limits.prefetch_bytes / 2 if busy else target.limits.prefetch_bytes
        moved = [t.demand.load_bytes + t.demand.store_bytes for t in graph.tasks]
        idle = [
            max(0.0, (target.task_gap_us + us) * self.rate - amount)
            for us, amount in zip(graph.alone_us, moved, strict=True)
        ]
        self.spare = [0.0, *accumulate(idle)]
        """What memory could have moved before each task beside what the tasks ask of it."""
        self.first_user = _first_users(graph)

    def run(self) -> list[Store]:
        found: list[Store] = []
        free_at, last = 0, None
        for task in self.graph.tasks:
            if task.id in self.busy or not self._may(task):
                continue
            size = task.demand.store_bytes
            if task.id < free_at or not self._pays(task):
                continue
            done = bisect_left(self.spare, self.spare[task.id + 1] + size)
            if done > self.first_user[task.id]:
                continue
            found.append(Store(task.id, last))
            last, free_at = task.id, done
        return found

    def _may(self, task: Task) -> bool:
        """Whether the task's stores are one tensor (views included), all of it and small enough."""
        if task.kind != "kernel" or task.name in self.context.fixed or not task.writes:
            return False
        roots = {self.graph.root(v) for v in task.writes}
        if len(roots) != 1:
            return False
        spec = self.graph.tensors[next(iter(roots))]
        whole = 0 < task.demand.store_bytes <= self.budget
        return whole and spec.bytes <= self.budget and spec.part_of is None

    def _pays(self, task: Task) -> bool:
        target = self.context.target
        rest_us = target.alone_us(replace(task.demand, store_bytes=0.0))
        return self.graph.alone_us[task.id] - rest_us > WORTH_EVENTS * target.event_us


def _first_users(graph: TaskGraph) -> list[int]:
    """The first task that waits for each; for one that nobody waits for, the number of tasks."""
    return [after[0] if after else len(graph) for after in graph.succs]
