"""The strategy ``single``."""

from __future__ import annotations

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)


class SingleStream(StreamStrategy):
    """Everything on stream 0, in the graph's order."""

    name = "single"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        return in_topological_order(graph, tuple(fixed.get(t, 0) for t in range(len(graph))))
