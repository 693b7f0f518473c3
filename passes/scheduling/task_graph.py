"""Tasks and what orders them, before they are placed on streams.

A `TaskGraph` is what lowering makes of a bound graph and what strategies work on. Its tasks
are `ir.schedule.Task` records in a topological order, all on stream 0: literally the schedule
on one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import BufferKind, Control, EventKind, StateAlias, Task
from gecompiler.ir.target import Target


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's packed size, what it is for, and the tensor whose memory it shares as a view."""

    bytes: int
    kind: BufferKind
    alias_of: str | None = None
    element_bits: int = 0
    """The width of an element, 0 where there are none."""
    part_of: tuple[str, int] | None = None
    """The tensor in whose memory this one is made, and how many bytes from its beginning."""


@dataclass(frozen=True, slots=True)
class Dep:
    """``consumer`` starts after ``producer`` ended, because of ``tensor`` or a control."""

    producer: int
    consumer: int
    kind: EventKind
    tensor: str = ""


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in topological order, their tensors, and the orders demanded beyond data.

    ``engines`` and ``labels`` belong to the tasks by index: the engine that runs the task in
    the words of the graph engine, and the user's stream label.
    """

    name: str
    tasks: tuple[Task, ...]
    tensors: Mapping[str, TensorSpec]
    engines: tuple[str, ...]
    labels: tuple[str | None, ...]
    alone_us: tuple[float, ...]
    """How long each task takes with nothing beside it."""
    controls: tuple[Control, ...] = ()
    states: tuple[StateAlias, ...] = ()
    riders: Mapping[str, int] = field(default_factory=dict)
    """The task of each op, and of each view the task that makes what it looks at."""

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def writer(self) -> dict[str, int]:
        """The task that writes each tensor; views stand under their own names where they ride."""
        return {tensor: task.id for task in self.tasks for tensor in task.writes}

    @cached_property
    def deps(self) -> tuple[Dep, ...]:
        """Every data dependency once a tensor, then every control."""
        found: dict[Dep, None] = {}
        for task in self.tasks:
            for tensor in task.reads:
                producer = self.writer.get(self.root(tensor))
                if producer is not None and producer != task.id:
                    found[Dep(producer, task.id, "data", tensor)] = None
        for control in self.controls:
            kind: EventKind = "user" if control.origin == "user" else "control"
            found[Dep(control.producer, control.consumer, kind)] = None
        return tuple(found)

    @cached_property
    def preds(self) -> tuple[tuple[int, ...], ...]:
        """The tasks each task waits for directly, ascending."""
        return _adjacency(len(self), ((d.consumer, d.producer) for d in self.deps))

    @cached_property
    def succs(self) -> tuple[tuple[int, ...], ...]:
        """The tasks that wait directly for each task, ascending."""
        return _adjacency(len(self), ((d.producer, d.consumer) for d in self.deps))

    def root(self, tensor: str) -> str:
        """The tensor whose memory this one is, itself when it is no view."""
        spec = self.tensors[tensor]
        while spec.alias_of is not None:
            tensor = spec.alias_of
            spec = self.tensors[tensor]
        return tensor

    def with_controls(self, extra: Sequence[Control]) -> TaskGraph:
        """The graph with more orders demanded, its tasks sorted anew where these need it.

        ScheduleError naming the tasks of the cycle when no order meets them all.
        """
        if not extra:
            return self
        wider = replace(self, controls=(*self.controls, *extra))
        if all(c.producer < c.consumer for c in extra):
            return wider
        return wider.renumbered(topological_order(wider))

    def renumbered(self, order: Sequence[int]) -> TaskGraph:
        """The same graph with its tasks in another topological order."""
        new = {old: i for i, old in enumerate(order)}
        return replace(
            self,
            tasks=tuple(replace(self.tasks[old], id=i, order=i) for i, old in enumerate(order)),
            engines=tuple(self.engines[old] for old in order),
            labels=tuple(self.labels[old] for old in order),
            alone_us=tuple(self.alone_us[old] for old in order),
            controls=tuple(
                replace(c, producer=new[c.producer], consumer=new[c.consumer])
                for c in self.controls
            ),
            riders={op: new[task] for op, task in self.riders.items()},
        )

    def utilisations(self, target: Target) -> list[tuple[tuple[str, float], ...]]:
        """The share of each resource that a task uses on average while it runs alone."""
        capacities = target.capacities()
        found: list[tuple[tuple[str, float], ...]] = []
        for task, alone in zip(self.tasks, self.alone_us, strict=True):
            work = target.work(task.demand) if alone > 0 else {}
            found.append(
                tuple(
                    (resource, amount / (capacity_of(resource, capacities) * alone))
                    for resource, amount in sorted(work.items())
                    if amount > 0
                )
            )
        return found


def capacity_of(resource: str, capacities: Mapping[str, float]) -> float:
    """Units per us of a resource; a link's may be given for its kind: ``hccs`` for ``hccs:0-1``."""
    if resource in capacities:
        return capacities[resource]
    return capacities[resource.split(":", 1)[0]]


def _adjacency(n: int, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    found: list[set[int]] = [set() for _ in range(n)]
    for node, other in pairs:
        found[node].add(other)
    return tuple(tuple(sorted(others)) for others in found)


def topological_order(graph: TaskGraph, rank: Sequence[int] | None = None) -> list[int]:
    """Task ids, producers first; among ready ones that of lowest ``rank``, by default the lowest.

    ScheduleError on a cycle, naming its tasks.
    """
    import heapq

    first = range(len(graph)) if rank is None else rank
    waiting = [len(p) for p in graph.preds]
    ready = [(first[t], t) for t, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        task = heapq.heappop(ready)[1]
        order.append(task)
        for after in graph.succs[task]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (first[after], after))
    if len(order) < len(graph):
        cycle = _cycle(graph, waiting)
        names = " -> ".join(graph.tasks[t].name for t in cycle)
        raise ScheduleError(
            f"the demanded orders form a cycle: {names}",
            where=graph.name,
            hint="remove one of the sync points between these",
        )
    return order


def _cycle(graph: TaskGraph, waiting: Sequence[int]) -> list[int]:
    """One cycle among the tasks that still wait, first task repeated at the end."""
    task = next(t for t, count in enumerate(waiting) if count)
    path: list[int] = []
    while task not in path:
        path.append(task)
        task = next(p for p in graph.preds[task] if waiting[p])
    return [*path[path.index(task) :], task][::-1]
