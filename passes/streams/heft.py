"""The strategy ``heft``: heterogeneous earliest finish time.

Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for
heterogeneous computing, IEEE TPDS 13(3), 2002.
"""

from __future__ import annotations

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.list_schedule import heft
from gecompiler.passes.streams.strategy import Placement, StrategyContext, StreamStrategy
from gecompiler.passes.streams.stream_problem import placement_of, problem_of


class Heft(StreamStrategy):
    """By the longest path ahead, each task where it ends first, idle slots used (HEFT)."""

    name = "heft"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        problem = problem_of(graph, context.target, context.streams, fixed)
        return placement_of(graph, heft(problem), "ends first here")
