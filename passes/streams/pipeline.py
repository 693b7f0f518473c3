"""The strategy ``pipeline``: micro-batches follow each other through the streams.

The batch was split by `passes.micro_batch`. Each micro-batch runs through one stream, the next
one through the next stream, and starts a little later, so that one computes on the cube cores
while another moves data or works on the vector cores. Samples do not depend on each other, so
next to no syncs are needed, whereas one batch spread over the streams needs some in every layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Control
from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph, capacity_of
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)


@dataclass(frozen=True)
class Pipeline(StreamStrategy):
    """Micro-batches follow each other through the streams, pipeline_depth of them in flight.

    ``lag`` is how far a micro-batch is behind the one before it, in stages. A stage is the mean
    time from one stretch of work on the resource that is needed most to the next.
    """

    lag: float = 1.0

    name: ClassVar[str] = "pipeline"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class.

        What belongs to no micro-batch is on the first stream, or on that of the last micro-batch
        when it needs some, so that the first stream is free for the next iteration.
        """
        members = _members(graph, context.parts)
        lanes = max(1, min(context.streams, context.pipeline_depth, len(members)))
        orders = [
            *self._lags(graph, context.target, members[:lanes]),
            *_gates(graph, context.pipeline_depth, members),
        ]
        try:
            ordered = graph.with_controls(orders)
        except ScheduleError:  # the user's sync points order the micro-batches in another way
            ordered = graph
        fixed = context.fixed_streams(ordered)
        streams: list[int] = []
        reasons: dict[int, str] = {}
        for task, (part, shared) in enumerate(_places(ordered, context.parts)):
            streams.append(fixed.get(task, part % lanes))
            reasons[task] = "all micro-batches" if shared else f"micro-batch {part}"
            if task in fixed:
                reasons[task] = "fixed by the user"
        return in_topological_order(ordered, tuple(streams), reasons)

    def _lags(
        self, graph: TaskGraph, target: Target, members: Sequence[Sequence[int]]
    ) -> Iterator[Control]:
        """Orders that hold the first task on each stream back by ``lag`` stages."""
        if len(members) < 2:
            return
        lag = self.lag * _stage_us(graph, target, members[0])
        for ahead, behind in pairwise(members):
            done = 0.0
            for task in ahead:
                done += graph.alone_us[task] + target.task_gap_us
                if done >= lag:
                    yield Control(task, behind[0], "graph", "pipeline_lag")
                    break


def _members(graph: TaskGraph, parts: Mapping[str, int]) -> list[list[int]]:
    """The tasks of each micro-batch, in the graph's order."""
    found: list[list[int]] = [[] for _ in range(1 + max(parts.values(), default=-1))]
    for task in graph.tasks:
        part = parts.get(task.name)
        if part is not None:
            found[part].append(task.id)
    return [tasks for tasks in found if tasks]


def _places(graph: TaskGraph, parts: Mapping[str, int]) -> Iterator[tuple[int, bool]]:
    """The micro-batch with which each task goes, and whether it belongs to all of them."""
    last = max(parts.values(), default=0)
    after: set[int] = set()
    for task in graph.tasks:
        part = parts.get(task.name)
        if part is not None or not after.isdisjoint(graph.preds[task.id]):
            after.add(task.id)
        shared = last if task.id in after else 0
        yield (shared, True) if part is None else (part, False)


def _stage_us(graph: TaskGraph, target: Target, tasks: Sequence[int]) -> float:
    """The mean time between stretches of work on the resource that the tasks need most."""
    capacities = target.capacities()
    total: dict[str, float] = {}
    leading: list[str] = []
    for task in tasks:
        work = target.work(graph.tasks[task].demand)
        times = {r: amount / capacity_of(r, capacities) for r, amount in sorted(work.items())}
        for resource, time in times.items():
            total[resource] = total.get(resource, 0.0) + time
        leading.append(max(times, key=times.__getitem__, default=""))
    most = max(total, key=total.__getitem__, default="")
    stretches = sum(kind == most for kind, _ in groupby(leading))
    busy = math.fsum(graph.alone_us[task] + target.task_gap_us for task in tasks)
    return busy / max(1, stretches)


def _gates(graph: TaskGraph, depth: int, members: Sequence[Sequence[int]]) -> Iterator[Control]:
    """Orders that let a micro-batch start when the one ``depth`` before it has ended."""
    for ahead, behind in zip(members, members[depth:], strict=False):
        own = set(ahead)
        ends = [task for task in ahead if own.isdisjoint(graph.succs[task])]
        own = set(behind)
        first, *others = (task for task in behind if own.isdisjoint(graph.preds[task]))
        yield from (Control(end, first, "graph", "pipeline_depth") for end in ends)
        yield from (Control(first, other, "graph", "pipeline_depth") for other in others)
