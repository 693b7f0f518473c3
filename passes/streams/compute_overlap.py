"""The strategy ``compute_overlap``: computation on stream 0, its loads and stores on the others.

A kernel that reads what no task makes (weights, the KV cache, inputs) is split in two where that
pays (see `prefetch`): a ``load`` task with part of the bytes, and the kernel with the rest. What
is loaded and not used yet never exceeds the device's prefetch budget: a load waits for the
kernel whose data must be gone to make room. In the same way the stores of a kernel whose result
nobody needs soon become a ``store`` task behind it (see `writeback`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gecompiler.ir.schedule import Control, Demand, Task
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.prefetch import Load, Prefetcher
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)
from gecompiler.passes.streams.writeback import Store, stores_behind


class ComputeOverlap(StreamStrategy):
    """Loads that depend on nothing computed run ahead, stores nobody waits for behind."""

    name = "compute_overlap"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        if context.streams < 2:
            return in_topological_order(graph, tuple(fixed.get(t, 0) for t in range(len(graph))))
        loads = Prefetcher(graph, context).loads()
        stores = stores_behind(graph, context, {load.kernel for load in loads})
        return _split(graph, context, loads, stores)


def _split(
    graph: TaskGraph, context: StrategyContext, loads: list[Load], stores: list[Store]
) -> Placement:
    """The graph with its loads and stores apart, placed.

    Each load is in sequence as soon as there is room, each store right behind its kernel.
    """
    at: dict[int | None, list[Load]] = {}
    for load in loads:
        at.setdefault(load.room_after, []).append(load)
    kernels = {load.kernel: load for load in loads}
    behind = {store.kernel: store for store in stores}
    names = {task.name for task in graph.tasks}
    lanes = max(1, context.streams - (2 if stores else 1))
    builder = _Builder(graph, context, names, lanes)
    builder.issue(at.get(None, []))
    for task in graph.tasks:
        builder.keep(task, kernels.get(task.id), behind.get(task.id))
        builder.issue(at.get(task.id, []))
    return builder.placement()


class _Builder:
    """Lays tasks and loads one behind another and numbers them anew."""

    def __init__(
        self, graph: TaskGraph, context: StrategyContext, names: set[str], lanes: int
    ) -> None:
        self.graph, self.context, self.names = graph, context, names
        self.lanes = lanes
        """How many streams loads take."""
        self.tasks: list[Task] = []
        self.streams: list[int] = []
        self.origin: list[int] = []
        self.new: dict[int, int] = {}
        self.done: dict[int, int] = {}
        """The task with which an old one is over: its store, where it has one."""
        self.load_of: dict[int, int] = {}
        self.controls: list[Control] = []
        self.issued = 0

    def issue(self, loads: list[Load]) -> None:
        for load in loads:
            kernel = self.graph.tasks[load.kernel]
            self.load_of[load.kernel] = len(self.tasks)
            if load.room_after is not None:
                room = Control(self.new[load.room_after], len(self.tasks), "graph", "prefetch_room")
                self.controls.append(room)
            move = self._move(kernel, "load", Demand(load_bytes=load.bytes), reads=load.reads)
            self._append(move, 1 + self.issued % self.lanes, load.kernel)
            self.issued += 1

    def keep(self, task: Task, load: Load | None, store: Store | None) -> None:
        kernel = task
        if load is not None:
            left = max(0.0, task.demand.load_bytes - load.bytes)
            task = replace(task, demand=replace(task.demand, load_bytes=left))
            pair = Control(self.load_of[task.id], len(self.tasks), "graph", "prefetch")
            self.controls.append(pair)
        if store is not None:
            task = replace(task, demand=replace(task.demand, store_bytes=0.0), writes=())
            if store.room_after is not None:
                room = Control(self.done[store.room_after], len(self.tasks), "graph", "store_room")
                self.controls.append(room)
        self.new[task.id] = self.done[task.id] = len(self.tasks)
        self._append(task, self.context.fixed.get(task.name, 0), task.id)
        if store is not None:
            self._store(kernel)

    def _store(self, kernel: Task) -> None:
        """The task that publishes what the kernel made; on the last stream, away from loads."""
        self.controls.append(Control(self.new[kernel.id], len(self.tasks), "graph", "store"))
        self.done[kernel.id] = len(self.tasks)
        demand = Demand(store_bytes=kernel.demand.store_bytes)
        move = self._move(kernel, "store", demand, writes=kernel.writes)
        self._append(move, self.context.streams - 1, kernel.id)

    def _move(
        self,
        kernel: Task,
        kind: Literal["load", "store"],
        demand: Demand,
        *,
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
    ) -> Task:
        """A kernel's load or store as a task; `_append` gives it its number."""
        return Task(
            id=0,
            name=self._fresh(f"{kernel.name}.{kind}"),
            kind=kind,
            stream=0,
            order=0,
            op_type=kernel.op_type,
            group=kernel.group,
            reads=reads,
            writes=writes,
            demand=demand,
        )

    def _append(self, task: Task, stream: int, origin: int) -> None:
        index = len(self.tasks)
        self.tasks.append(replace(task, id=index, order=index))
        self.streams.append(stream)
        self.origin.append(origin)

    def _fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def placement(self) -> Placement:
        graph, new = self.graph, self.new
        kept = [
            replace(c, producer=self.done[c.producer], consumer=new[c.consumer])
            for c in graph.controls
        ]
        alone = [
            graph.alone_us[o] if t.demand is graph.tasks[o].demand else self._alone(t)
            for t, o in zip(self.tasks, self.origin, strict=True)
        ]
        split = replace(
            graph,
            tasks=tuple(self.tasks),
            engines=tuple(graph.engines[o] for o in self.origin),
            labels=tuple(graph.labels[o] for o in self.origin),
            alone_us=tuple(alone),
            controls=(*kept, *self.controls),
            riders={op: new[task] for op, task in graph.riders.items()},
        )
        why = {"load": "load ahead", "store": "store behind"}
        reasons = {t.id: why.get(t.kind, "computation") for t in split.tasks}
        return in_topological_order(split, tuple(self.streams), reasons)

    def _alone(self, task: Task) -> float:
        return self.context.target.alone_us(task.demand)
