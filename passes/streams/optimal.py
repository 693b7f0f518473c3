"""The strategy ``optimal``: streams, order and resources by constraint programming.

Exact for tasks at fixed rates, as `stream_problem` says: what runs side by side runs at full
speed. The device may do a little better by letting tasks slow each other down; how the schedule
compares with what no schedule can beat there is told by the certificate all schedules have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gecompiler.ir.errors import UsageError
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.cp_sat import load_cp_sat, solve
from gecompiler.passes.streams.list_schedule import heft
from gecompiler.passes.streams.search import Budget, search
from gecompiler.passes.streams.strategy import (
    Placement,
    SolverReport,
    StrategyContext,
    StreamStrategy,
)
from gecompiler.passes.streams.stream_problem import placement_of, problem_of

MOST_TASKS = 2_000
"""Graphs with more tasks are refused: not even the model could be handled."""

SEARCHED = 40_000
"""So many tasks are placed in the search for a plan to start from."""

NANOSECOND = 1e-3


class Optimal(StreamStrategy):
    """Exact at fixed rates, by constraint programming, with the gap proven (extra: solver)."""

    name: ClassVar[str] = "optimal"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class. UsageError without OR-tools, and for graphs of too many tasks."""
        load_cp_sat()
        if len(graph) > MOST_TASKS:
            raise UsageError(
                f"it takes up to {MOST_TASKS} tasks, the graph has {len(graph)}",
                where="strategy 'optimal'",
                hint="use strategy 'critical_path' or 'auto'",
            )
        fixed = context.fixed_streams(graph)
        problem = problem_of(graph, context.target, context.streams, fixed)
        plans = max(2, SEARCHED // max(1, len(graph)))
        first = search(problem, Budget(plans=plans, seed=context.seed)).plan
        first = min(first, heft(problem), key=lambda plan: plan.makespan)
        solved = solve(
            problem, first, seconds=context.solver_seconds, seed=context.seed, unit=NANOSECOND
        )
        limit, seed = context.solver_seconds, context.seed
        report = SolverReport(solved.plan.makespan, solved.bound, solved.proven, limit, seed)
        placement = placement_of(graph, solved.plan, "so decided by the solver")
        return replace(placement, solver=report)
