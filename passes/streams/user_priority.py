"""The user's priorities and limits of cores, carried from ops over to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Demand
from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph, topological_order
from gecompiler.passes.streams.strategy import Placement


def with_core_limits(tasks: TaskGraph, graph: Graph, target: Target) -> TaskGraph:
    """Tasks that use no more cores than the user allows, or than there are."""
    demands: dict[int, Demand] = {}
    for task in tasks.tasks:
        if task.name not in graph:
            continue
        info = graph.op(task.name).info
        if info.cube_cores is None and info.vector_cores is None:
            continue
        own = task.demand
        demands[task.id] = replace(
            own,
            cube_cores=_least(own.cube_cores, info.cube_cores),
            vector_cores=_least(own.vector_cores, info.vector_cores),
        )
    if not demands:
        return tasks
    return replace(
        tasks,
        tasks=tuple(replace(t, demand=demands.get(t.id, t.demand)) for t in tasks.tasks),
        alone_us=tuple(
            target.alone_us(demands[t]) if t in demands else us
            for t, us in enumerate(tasks.alone_us)
        ),
    )


def _least(wanted: int, limit: int | None) -> int:
    return wanted if limit is None else min(wanted, limit)


def priorities_of(graph: Graph) -> dict[str, int]:
    """The priority of every op that has one, by name."""
    return {op.name: op.info.priority for op in graph.ops if op.info.priority}


def by_priority(placement: Placement, priority: Mapping[str, int]) -> Placement:
    """The same streams; of the tasks whose producers are issued the highest priority goes first.

    Among equals the strategy's own order stands.
    """
    if not priority:
        return placement
    graph = placement.graph
    wish = [_priority(t.name, t.ops, priority) for t in graph.tasks]
    rank = [0] * len(graph)
    for place, task in enumerate(sorted(placement.sequence, key=lambda t: -wish[t])):
        rank[task] = place
    return replace(placement, sequence=tuple(topological_order(graph, rank)))


def _priority(name: str, ops: tuple[str, ...], priority: Mapping[str, int]) -> int:
    if name in priority:
        return priority[name]
    return max((priority[op] for op in ops if op in priority), default=0)
