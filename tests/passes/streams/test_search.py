"""Abstract problems: plans are valid, HEFT is HEFT, and the search finds known optima."""

from __future__ import annotations

import random

import pytest
from fakes import FakeEvaluator, FakeTarget, random_dag, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import TEN, brute_force, random_problem

from gecompiler.ir.errors import ScheduleError
from gecompiler.passes.streams.evaluation import evaluate
from gecompiler.passes.streams.list_schedule import ListScheduler, heft, order_of
from gecompiler.passes.streams.parallel_schedule import parallel
from gecompiler.passes.streams.priorities import RULES
from gecompiler.passes.streams.problem import Problem
from gecompiler.passes.streams.problem_bounds import head_body_tail, makespan_bound
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.search import Budget, search
from gecompiler.passes.streams.strategy import StrategyContext

seeds = st.integers(0, 10**9)


def test_heft_of_the_ten_task_graph_is_80() -> None:
    plan = heft(TEN)
    assert plan.makespan == 80
    assert [(t, plan.start[t]) for t in range(10) if plan.processor[t] == 0] == [(1, 27), (7, 57)]
    assert not plan.faults(TEN)


def test_search_of_the_ten_task_graph_finds_73() -> None:
    found = search(TEN, Budget(plans=20_000, seed=1))
    assert found.plan.makespan == 73
    assert not found.plan.faults(TEN)


@given(seeds)
@settings(max_examples=120, deadline=None)
def test_plans_of_every_rule_are_valid_and_not_below_the_bound(seed: int) -> None:
    problem = random_problem(seed, most=14)
    scheduler = ListScheduler(problem)
    bound = makespan_bound(problem)
    for rule in RULES:
        priority = rule(problem)
        for plan in (
            scheduler.serial(order_of(problem, priority)),
            parallel(problem, scheduler.packing, priority),
        ):
            assert plan.faults(problem) == []
            assert plan.makespan >= bound


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_search_finds_what_brute_force_finds(seed: int) -> None:
    problem = random_problem(seed, most=5)
    found = search(problem, Budget(plans=1_500))
    assert found.plan.faults(problem) == []
    assert found.plan.makespan == brute_force(problem)
    assert found.bound <= found.plan.makespan


def test_search_depends_on_the_seed_alone() -> None:
    problem = random_problem(7, most=14)
    one, two = (search(problem, Budget(plans=400, seed=3)) for _ in range(2))
    assert one == two


def test_faults_tell_of_wrong_plans() -> None:
    from dataclasses import replace

    plan = search(TEN, Budget(plans=200)).plan
    early = replace(plan, start=(*plan.start[:9], 0.0))
    assert any("starts before" in f for f in early.faults(TEN))
    assert any("overlap" in f for f in replace(plan, processor=(0,) * 10).faults(TEN))
    assert any("makespan" in f for f in replace(plan, makespan=1.0).faults(TEN))
    pair = Problem(((2,), (2,)), (), demands=(((0, 2),), ((0, 1),)), capacities=(2,))
    both = replace(search(pair, Budget(plans=10)).plan, start=(0.0, 0.0), makespan=2.0)
    assert any("3 of 2" in f for f in both.faults(pair))


def test_impossible_problems_are_refused() -> None:
    with pytest.raises(ScheduleError, match="cycle"):
        Problem(((1,), (1,)), ((0, 1, 0), (1, 0, 0)))
    with pytest.raises(ScheduleError, match="needs 3"):
        Problem(((1,),), (), demands=(((0, 3),),), capacities=(2,))


def test_head_body_tail_sees_a_bottleneck_in_the_middle() -> None:
    assert head_body_tail([5, 5, 0], [4, 4, 1], [3, 3, 0], 1) == 16


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_heft_on_streams_runs_as_planned_where_nothing_contends(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 14)
    times = [float(rng.randint(1, 9)) for _ in range(count)]
    graph = task_graph(count, random_dag(rng, count, 0.3), times)
    target = FakeTarget()
    placement = make_strategy("heft").assign(graph, StrategyContext(target, rng.randint(1, 4)))
    makespan = evaluate("heft", placement, target, FakeEvaluator(target)).makespan_ns
    assert makespan <= (sum(times) + count * (target.event_us + target.task_gap_us)) * 1000
    assert sorted(placement.sequence) == list(range(count))
