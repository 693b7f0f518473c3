"""What to load ahead of which kernel, so that it pays.

Three things bound a load: the share of a task's bytes that the user allows (``overlap_ratio``),
the on-chip memory for loads that are not used yet, and the memory bandwidth that the tasks
before the kernel leave idle from the moment there is room. A load is issued only where its
kernel becomes shorter by more than the syncs cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gecompiler.ir.schedule import Task
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.strategy import StrategyContext

WORTH_EVENTS = 1.5
"""A kernel must become shorter by this many syncs to be worth its load's two."""


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes to bring in ahead of a kernel, and the kernel that makes room (None: there is)."""

    kernel: int
    bytes: float
    reads: tuple[str, ...]
    rest_us: float
    """How long the kernel then takes alone."""
    room_after: int | None


class Prefetcher:
    """Goes over the tasks in order and keeps account of room and of idle bandwidth."""

    def __init__(self, graph: TaskGraph, context: StrategyContext) -> None:
        self._graph = graph
        self._context = context
        self._budget = float(context.target.limits.prefetch_bytes)
        self._found: list[Load] = []
        self._oldest = 0
        self._held = 0.0
        self._spare = 0.0
        """Bytes that memory could have moved so far beside what the tasks ask of it."""
        self._spare_after: list[float] = []

    def loads(self) -> list[Load]:
        """The loads worth issuing ahead, in the order of their kernels. O(tasks)."""
        target = self._context.target
        rate = target.capacities()["hbm"]
        for task in self._graph.tasks:
            load = self._load(task)
            time, moved = self._graph.alone_us[task.id], _moved(task)
            if load is not None:
                self._take(load)
                time, moved = load.rest_us, moved - load.bytes
            self._spare += max(0.0, (target.task_gap_us + time) * rate - moved)
            self._spare_after.append(self._spare)
        return self._found

    def _load(self, task: Task) -> Load | None:
        if task.kind != "kernel" or task.name in self._context.fixed:
            return None
        reads = sources(self._graph, task)
        there = sum(self._graph.tensors[self._graph.root(v)].bytes for v in reads)
        most = min(self._context.overlap_ratio * task.demand.load_bytes, there, self._budget)
        # Either as much as is allowed, waiting for room, or what there is room for now.
        amounts = [self._within_spare(most), min(most, self._budget - self._held)]
        return self._worth(task, reads, max(amounts[0], self._within_spare(amounts[1])))

    def _within_spare(self, amount: float) -> float:
        """As much of it as idle bandwidth carries from the moment there is room."""
        _, room_after = self._room(amount)
        since = self._spare_after[room_after] if room_after is not None else 0.0
        return min(amount, self._spare - since)

    def _worth(self, task: Task, reads: tuple[str, ...], amount: float) -> Load | None:
        if amount <= 0:
            return None
        target = self._context.target
        rest = replace(task.demand, load_bytes=task.demand.load_bytes - amount)
        rest_us = target.alone_us(rest)
        if self._graph.alone_us[task.id] - rest_us <= WORTH_EVENTS * target.event_us:
            return None
        return Load(task.id, amount, reads, rest_us, self._room(amount)[1])

    def _room(self, amount: float) -> tuple[int, int | None]:
        """How many of the oldest loads must be used up, and the kernel that uses up the last."""
        held, oldest = self._held + amount, self._oldest
        while held > self._budget and oldest < len(self._found):
            held -= self._found[oldest].bytes
            oldest += 1
        return oldest, self._found[oldest - 1].kernel if oldest else None

    def _take(self, load: Load) -> None:
        oldest, _ = self._room(load.bytes)
        self._held -= math.fsum(item.bytes for item in self._found[self._oldest : oldest])
        self._held += load.bytes
        self._oldest = oldest
        self._spare -= load.bytes
        self._found.append(load)


def _moved(task: Task) -> float:
    return task.demand.load_bytes + task.demand.store_bytes


def sources(graph: TaskGraph, task: Task) -> tuple[str, ...]:
    """What the task reads that no task makes, where it reads all of it (not a table's rows)."""
    whole: dict[str, str] = {}
    for value in task.reads:
        root = graph.root(value)
        if root not in graph.writer and graph.tensors[root].bytes <= task.demand.load_bytes:
            whole.setdefault(root, value)
    return tuple(whole.values())
