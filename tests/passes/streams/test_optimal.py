"""The exact strategy: proven optima, bounds that hold, the same answer twice."""

from __future__ import annotations

import random
import sys

import pytest
from fakes import FakeEvaluator, FakeTarget, random_dag, random_graph, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import TEN, brute_force, random_problem

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams import cp_sat
from gecompiler.passes.streams.cp_sat import solve
from gecompiler.passes.streams.list_schedule import heft
from gecompiler.passes.streams.optimal import MOST_TASKS
from gecompiler.passes.streams.problem import Problem
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.strategy import StrategyContext

seeds = st.integers(0, 10**9)


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(UsageError, match="OR-tools") as error:
        make_strategy("optimal").assign(task_graph(2, []), StrategyContext(FakeTarget(), 2))
    assert "pip install 'gecompiler[solver]'" in error.value.hint


class TestWithSolver:
    @pytest.fixture(autouse=True)
    def _solver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("ortools")
        # Only the deterministic limit counts, however busy the machine.
        monkeypatch.setattr(cp_sat, "WALL", 1e4)

    def test_the_ten_task_graph_is_proven(self) -> None:
        solved = solve(TEN, heft(TEN), seconds=20)
        assert (solved.plan.makespan, solved.bound, solved.proven) == (73, 73, True)
        assert solved.gap == 0

    @given(seeds)
    @settings(max_examples=30, deadline=None)
    def test_optimum_is_brute_force_and_the_bound_holds(self, seed: int) -> None:
        problem = random_problem(seed, most=5)
        solved = solve(problem, heft(problem))
        assert solved.proven
        assert solved.plan.faults(problem) == []
        assert solved.bound == solved.plan.makespan == brute_force(problem)

    def test_a_task_without_duration_needs_no_room(self) -> None:
        problem = Problem(
            ((6, 6), (0, 0), (2, 2), (2, 2), (1, 1)),
            ((0, 4, 3), (1, 4, 3)),
            processors=2,
            demands=(((1, 2),), ((0, 1), (1, 2)), (), ((1, 1),), ((0, 1), (1, 2))),
            capacities=(1, 2),
            gap=1,
        )
        solved = solve(problem, heft(problem))
        assert solved.plan.makespan == solved.bound == 9

    def test_stopped_at_once_it_keeps_what_it_was_given(self) -> None:
        hint = heft(TEN)
        solved = solve(TEN, hint, seconds=1e-6)
        assert solved.plan == hint
        assert not solved.proven
        assert 0 < solved.bound <= 73
        assert solved.gap > 0

    @given(seeds)
    @settings(max_examples=15, deadline=None)
    def test_strategy_keeps_the_users_streams_and_is_deterministic(self, seed: int) -> None:
        rng = random.Random(seed)
        count = rng.randint(1, 9)
        times = [rng.uniform(0.5, 9) for _ in range(count)]
        graph = task_graph(count, random_dag(rng, count, 0.3), times)
        fixed = {"t0": rng.randrange(2)}
        context = StrategyContext(FakeTarget(), 2, fixed, solver_seconds=2.0)
        one, two = (make_strategy("optimal").assign(graph, context) for _ in range(2))
        assert (one.stream, one.sequence) == (two.stream, two.sequence)
        assert one.stream[0] == fixed["t0"]
        assert one.solver is not None
        assert one.solver.bound_us <= one.solver.makespan_us

    def test_result_reports_what_was_proven(self) -> None:
        target = FakeTarget()
        result = build_schedule(
            random_graph(3, states=False),
            target,
            FakeEvaluator(target),
            ScheduleOptions(num_streams=2, strategy="optimal", solver_seconds=3.0),
            UserControl(),
            Diagnostics(),
        )
        assert result.solver is not None
        assert result.solver.proven
        assert result.solver.gap <= 1e-3
        assert result.schedule.findings() == []

    def test_too_many_tasks_are_refused(self) -> None:
        graph = task_graph(MOST_TASKS + 1, [])
        with pytest.raises(UsageError, match="tasks"):
            make_strategy("optimal").assign(graph, StrategyContext(FakeTarget(), 2))
