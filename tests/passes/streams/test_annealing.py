"""Annealing: what it says a state takes is what list scheduling makes of it, or more."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from problems import TEN, random_problem

from gecompiler.passes.streams.annealing import Annealer
from gecompiler.passes.streams.list_schedule import ListScheduler, heft
from gecompiler.passes.streams.search import Budget, search


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_the_best_state_is_valid_and_no_worse_than_the_first(seed: int) -> None:
    problem = random_problem(seed)
    if not problem.processors or problem.capacities:
        return
    rng = random.Random(seed)
    annealer = Annealer(problem, rng)
    first = list(problem.topological)
    choice = [rng.choice(c) for c in problem.choices]
    order, home = annealer.anneal(first, choice, 300, lambda: False)
    assert annealer.makespan(order, home) <= annealer.makespan(first, choice)
    plan = ListScheduler(problem).serial(order, home)
    assert plan.faults(problem) == []
    assert plan.makespan <= annealer.makespan(order, home) + 1e-9  # idle slots are used as well


def test_a_step_that_is_not_taken_leaves_no_trace() -> None:
    annealer = Annealer(TEN, random.Random(3))
    order, choice = list(TEN.topological), [0] * len(TEN)
    for _ in range(500):
        before = (order.copy(), choice.copy())
        annealer._move(order, choice)()
        assert (order, choice) == before


def test_the_ten_task_graph_is_solved_from_one_processor() -> None:
    annealer = Annealer(TEN, random.Random(0))
    found = annealer.anneal(TEN.topological, [0] * len(TEN), 20_000, lambda: False)
    assert annealer.makespan(*found) <= 76 < heft(TEN).makespan
    assert search(TEN, Budget(plans=20_000)).plan.makespan == 73


def test_it_stops_when_told() -> None:
    annealer = Annealer(TEN, random.Random(0))
    order, choice = annealer.anneal(TEN.topological, [0] * len(TEN), 10**9, lambda: True)
    assert (tuple(order), choice) == (TEN.topological, [0] * len(TEN))
