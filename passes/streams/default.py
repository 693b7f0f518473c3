"""The strategy ``default``: what the graph engine does."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.folding import dense, fold_to
from gecompiler.passes.streams.ge_allocator import AllocatorOptions, allocate
from gecompiler.passes.streams.ladder import Unit
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)


class DefaultStreams(StreamStrategy):
    """The graph engine's ladder: labels, independent engines, reuse along dependencies.

    Streams that only wait for each other are folded away. It overlaps engines and not
    branches: each engine has one stream unless a label says otherwise.
    """

    name = "default"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        labels = [
            f"stream {fixed[t]}" if t in fixed else label or ""
            for t, label in enumerate(graph.labels)
        ]
        units = [
            Unit(engine, user_label=label)
            for engine, label in zip(graph.engines, labels, strict=True)
        ]
        options = AllocatorOptions(context.engine_streams, memory_priority=context.memory_priority)
        found = allocate(units, graph.preds, graph.succs, options)
        stream = dense(_all_placed(graph, found.stream), fixed)
        fewer = fold_to(graph, stream, context.streams, set(fixed.values()))
        reasons = dict(enumerate(found.rules))
        for task, (before, now) in enumerate(zip(stream, fewer, strict=True)):
            if before != now:
                reasons[task] += f"; its stream joined another, as there are {context.streams}"
        return in_topological_order(graph, tuple(dense(fewer, fixed)), reasons)


def _all_placed(graph: TaskGraph, given: Sequence[int | None]) -> list[int]:
    """Tasks that need no stream go where what they make is needed first."""
    found: list[int | None] = list(given)
    for task in range(len(graph) - 1, -1, -1):
        if found[task] is None:
            found[task] = next((found[s] for s in graph.succs[task]), 0)
    return [s or 0 for s in found]
