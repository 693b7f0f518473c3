"""Lower bounds: their values on small cases. That they hold is tested in test_build_random."""

from __future__ import annotations

from dataclasses import replace

from fakes import FakeTarget, task_graph

from gecompiler.ir.schedule import Demand
from gecompiler.passes.streams.bounds import Bounds, critical_path_us, lower_bounds, whole_ns


def test_critical_path_counts_the_cheaper_of_gap_and_event_between_tasks() -> None:
    graph = task_graph(4, [(0, 1), (1, 2)], [10.0, 10.0, 10.0, 25.0])
    assert critical_path_us(graph, FakeTarget(task_gap_us=1.0, event_us=1.5)) == 32.0
    assert critical_path_us(graph, FakeTarget(task_gap_us=2.0, event_us=0.5)) == 31.0


def test_streams_bound_counts_the_gaps_that_must_be() -> None:
    graph = task_graph(6, [], [10.0] * 6)
    target = FakeTarget(task_gap_us=1.0)
    assert lower_bounds(graph, target, 1).us["streams"] == 65.0
    assert lower_bounds(graph, target, 2).us["streams"] == 32.0
    assert lower_bounds(graph, target, 8).us["streams"] == 10.0  # six of them at most


def test_resource_bound_is_work_over_capacity() -> None:
    graph = task_graph(3, [])
    tasks = tuple(
        replace(t, demand=Demand(load_bytes=900.0, store_bytes=100.0)) for t in graph.tasks
    )
    bounds = lower_bounds(replace(graph, tasks=tasks), FakeTarget(), 4)
    assert bounds.us["hbm"] == 30.0
    assert "cube" not in bounds.us
    assert bounds.binding == "hbm"
    assert bounds.best == bounds.us["hbm"]


def test_links_find_the_capacity_of_their_kind() -> None:
    class Linked(FakeTarget):
        def capacities(self) -> dict[str, float]:
            return {"hccs": 10.0}

        def work(self, demand: Demand) -> dict[str, float]:
            return {"hccs:0-1": 50.0}

    graph = task_graph(2, [])
    fixed = min(t.demand.fixed_us for t in graph.tasks)
    assert lower_bounds(graph, Linked(), 1).us["hccs:0-1"] == fixed + 10.0


def test_an_empty_graph_takes_no_time() -> None:
    bounds = lower_bounds(task_graph(0, []), FakeTarget(), 2)
    assert bounds.best == 0.0
    assert Bounds({}).binding == ""


def test_times_are_rounded_down_to_nanoseconds() -> None:
    assert whole_ns(1.0009) == 1.0
    assert whole_ns(0.1 + 0.2) == 0.3
    assert whole_ns(0.0) == 0.0
