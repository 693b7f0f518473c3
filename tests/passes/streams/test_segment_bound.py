"""The bound of stretches of a path: never above a makespan of the simulator, and its worth."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from device_tasks import random_tasks
from fakes import FakeTarget, random_placement, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.device import Device, load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.schedule import Demand
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.bounds import lower_bounds
from gecompiler.passes.streams.evaluation import evaluate
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.segment_bound import segment_bound
from gecompiler.passes.streams.strategy import Placement, StrategyContext

seeds = st.integers(0, 10**9)


@cache
def device(name: str) -> Device:
    return load_device(name)


@given(seeds, st.sampled_from(["ascend910", "ascend910b"]))
@settings(max_examples=150, deadline=None)
def test_no_placement_is_shorter_on_the_simulator(seed: int, name: str) -> None:
    rng = random.Random(seed)
    target = device(name)
    simulate = Simulator(target)
    graph = random_tasks(rng, rng.randint(1, 14), target)
    streams = rng.randint(1, 4)
    bounds = lower_bounds(graph, target, streams)
    assert bounds.us["segments"] >= bounds.us["critical_path"]
    for _ in range(4):
        placement = random_placement(graph, rng, streams)
        makespan = evaluate("random", placement, target, simulate).makespan_ns
        assert bounds.best <= makespan / 1000, bounds
    planned = make_strategy("critical_path").assign(graph, StrategyContext(target, streams))
    assert bounds.best <= evaluate("planned", planned, target, simulate).makespan_ns / 1000


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_not_above_the_best_of_all_placements(seed: int) -> None:
    rng = random.Random(seed)
    target = device("ascend910")
    simulate = Simulator(target)
    graph = random_tasks(rng, rng.randint(1, 4), target)
    best = min(
        evaluate("any", placement, target, simulate).makespan_ns
        for placement in placements(graph, 2)
    )
    assert lower_bounds(graph, target, 2).best <= best / 1000


def placements(graph: TaskGraph, streams: int) -> list[Placement]:
    """Every stream for every task, in every order."""
    found: list[Placement] = []

    def grow(order: tuple[int, ...], stream: dict[int, int]) -> None:
        if len(order) == len(graph):
            found.append(Placement(graph, tuple(stream[t] for t in range(len(graph))), order))
            return
        for task in range(len(graph)):
            if task not in stream and all(p in stream for p in graph.preds[task]):
                for s in range(streams):
                    grow((*order, task), {**stream, task: s})

    grow((), {})
    return found


def diamonds(count: int, us: float, work: float) -> TaskGraph:
    """One task, then two beside each other, then one, and so on; the pairs fill the cube."""
    edges, size = [], 3 * count + 1
    for i in range(count):
        a = 3 * i
        edges += [(a, a + 1), (a, a + 2), (a + 1, a + 3), (a + 2, a + 3)]
    graph = task_graph(size, edges, [us] * size)
    tasks = tuple(
        replace(t, demand=Demand(cube_us=work, cube_cores=1)) if t.id % 3 else t
        for t in graph.tasks
    )
    return replace(graph, tasks=tasks)


def test_pairs_that_share_a_resource_count_twice() -> None:
    target = FakeTarget(task_gap_us=0.0, event_us=0.0)  # one cube core
    bound = segment_bound(diamonds(5, 10.0, 10.0), target, 4)
    assert bound.us == pytest.approx(6 * 10 + 5 * 20)
    assert bound.binding == "cube"
    assert bound.excess == {"cube": pytest.approx(50.0)}
    half = segment_bound(diamonds(5, 10.0, 5.0), target, 4)
    assert half.us == pytest.approx(6 * 10 + 5 * 10)
    assert half.binding == "critical_path"


def test_one_stream_is_all_tasks_and_their_gaps() -> None:
    target = FakeTarget(task_gap_us=1.0, event_us=1.5)
    graph = diamonds(4, 10.0, 1.0)
    assert segment_bound(graph, target, 1).us == pytest.approx(13 * 10 + 12)


def test_start_up_before_and_after_the_work_is_counted() -> None:
    graph = task_graph(4, [(0, 1), (0, 2), (1, 3), (2, 3)], [5.0, 12.0, 12.0, 5.0])
    heavy = Demand(cube_us=10.0, cube_cores=1, fixed_us=2.0)
    tasks = tuple(replace(t, demand=heavy) if t.id in (1, 2) else t for t in graph.tasks)
    target = FakeTarget(task_gap_us=1.0, event_us=1.5)
    found = segment_bound(replace(graph, tasks=tasks), target, 4)
    assert found.us == pytest.approx(5 + 1 + 2 + 20 + 1 + 5)


def test_work_beside_the_path_does_not_count_where_it_may_run_at_any_time() -> None:
    edges = [(i, i + 1) for i in range(9)]
    graph = task_graph(11, edges, [10.0] * 11)
    free = FakeTarget(task_gap_us=0.0, event_us=0.0)
    assert segment_bound(graph, free, 4).us == pytest.approx(100.0)


class Told(FakeTarget):
    """A device that tells records and waits apart."""

    event_record_us = 0.75
    event_wait_us = 0.75


def test_a_fork_and_a_join_cost_events() -> None:
    target = Told(task_gap_us=1.0, event_us=1.5)
    graph = diamonds(3, 10.0, 0.0)
    # side by side each pair costs an event at its fork and one at its join, 0.5 more than a gap
    assert segment_bound(graph, target, 4).us == pytest.approx(7 * 10 + 6 * 1.5)
    assert segment_bound(graph, target, 4).binding == "events"
    # what also follows along the path needs no event
    skips = task_graph(4, [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)], [10.0] * 4)
    assert segment_bound(skips, target, 4).us == pytest.approx(43.0)
    # where the device does not tell records and waits, a second gap is as good as an event
    assert segment_bound(diamonds(3, 10.0, 0.0), FakeTarget(), 4).us == pytest.approx(76.0)


def test_one_fork_costs_what_the_simulator_says_it_does() -> None:
    target = device("ascend910")
    graph = diamonds(1, 50.0, 0.0)
    demand = Demand(fixed_us=50.0)
    graph = replace(graph, tasks=tuple(replace(t, demand=demand) for t in graph.tasks))
    best = min(
        evaluate("any", placement, target, Simulator(target)).makespan_ns
        for placement in placements(graph, 3)
    )
    assert segment_bound(graph, target, 3).us == pytest.approx(best / 1000, abs=2e-3)
