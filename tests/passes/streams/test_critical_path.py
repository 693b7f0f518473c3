"""List scheduling: wide graphs spread, chains stay, saturated resources are not shared."""

from __future__ import annotations

import random
from dataclasses import replace

from fakes import FakeEvaluator, FakeTarget, random_dag, task_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.schedule import Demand
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.critical_path import CriticalPath
from gecompiler.passes.streams.evaluation import evaluate
from gecompiler.passes.streams.ranks import upward_ranks
from gecompiler.passes.streams.strategy import StrategyContext


def place(graph: TaskGraph, streams: int, **fixed: int):
    return CriticalPath().assign(graph, StrategyContext(FakeTarget(), streams, fixed))


def busy(graph: TaskGraph, demands: list[Demand]) -> TaskGraph:
    target = FakeTarget()
    tasks = tuple(replace(t, demand=d) for t, d in zip(graph.tasks, demands, strict=True))
    return replace(graph, tasks=tasks, alone_us=tuple(target.alone_us(d) for d in demands))


def test_a_chain_stays_on_one_stream() -> None:
    graph = task_graph(6, [(i, i + 1) for i in range(5)])
    assert place(graph, 4).stream == (0,) * 6


def test_independent_work_is_spread() -> None:
    graph = task_graph(8, [], [10.0] * 8)
    assert sorted(place(graph, 4).stream) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_two_tasks_that_saturate_a_resource_do_not_run_side_by_side() -> None:
    memory = Demand(load_bytes=1000.0)
    graph = busy(task_graph(2, []), [memory, memory])
    no_gap = StrategyContext(FakeTarget(task_gap_us=0.0), 2)
    assert CriticalPath().assign(graph, no_gap).used == 1


def test_tasks_of_different_resources_run_side_by_side() -> None:
    graph = busy(task_graph(2, []), [Demand(load_bytes=1000.0), Demand(cube_us=10.0, cube_cores=1)])
    assert place(graph, 2).used == 2


def test_the_longer_way_goes_first() -> None:
    graph = task_graph(4, [(1, 2), (2, 3)], [5.0, 5.0, 5.0, 5.0])
    assert place(graph, 1).sequence == (1, 2, 0, 3)


def test_the_user_is_obeyed() -> None:
    graph = task_graph(6, [(0, 1), (1, 2)], [4.0] * 6)
    placement = place(graph, 2, t1=3, t5=0)
    assert (placement.stream[1], placement.stream[5]) == (3, 0)
    assert set(placement.stream) <= {0, 1, 3}


def test_upward_ranks() -> None:
    graph = task_graph(4, [(0, 1), (0, 2), (1, 3), (2, 3)], [1.0, 2.0, 5.0, 1.0])
    assert upward_ranks(graph.succs, graph.alone_us) == [7.0, 3.0, 6.0, 1.0]
    assert upward_ranks(graph.succs, graph.alone_us, 0.5) == [8.0, 3.5, 6.5, 1.0]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_sequence_is_topological_and_within_grahams_bound(seed: int) -> None:
    rng = random.Random(seed)
    count, streams = rng.randint(1, 30), rng.randint(1, 4)
    times = [rng.uniform(0, 20) for _ in range(count)]
    graph = task_graph(count, random_dag(rng, count, rng.choice((0.05, 0.2))), times)
    placement = place(graph, streams)
    rank = {t: i for i, t in enumerate(placement.sequence)}
    assert sorted(rank) == list(range(count))
    assert all(rank[d.producer] < rank[d.consumer] for d in graph.deps)
    assert set(placement.stream) <= set(range(streams))
    target = FakeTarget(task_gap_us=0.0, event_us=0.0)
    free = CriticalPath().assign(graph, StrategyContext(target, streams))
    timeline = evaluate("x", free, target, FakeEvaluator(target)).timeline
    path = max(upward_ranks(graph.succs, times))
    bound = sum(times) / streams + (1 - 1 / streams) * path
    assert timeline.makespan_ns <= bound * 1000 + count + 1
