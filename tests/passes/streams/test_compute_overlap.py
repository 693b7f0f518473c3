"""Loads run ahead of their kernels, within the budget, and nothing is loaded twice or lost."""

from __future__ import annotations

import itertools
import random

import networkx as nx
from fakes import FakeEvaluator, FakeTarget
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import tensor
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.streams.compute_overlap import ComputeOverlap
from gecompiler.passes.streams.evaluation import evaluate, schedule_of, synchronise
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import StrategyContext


def layers(count: int, width: int = 32) -> Graph:
    """A chain of products with weights of width * width * 4 bytes each."""
    graph = Graph("layers")
    x = graph.add_input("x", tensor("f32", (8, width)))
    for i in range(count):
        w = graph.add_constant(f"w{i}", Constant.absent(tensor("f32", (width, width))))
        x = graph.emit("MatMul", [x, w], tensor("f32", (8, width)), stem=f"mm{i}")
    graph.set_outputs([x])
    return graph


def placed(graph: Graph, target: FakeTarget, ratio: float = 1.0, streams: int = 2, **fixed: int):
    context = StrategyContext(target, streams, fixed, overlap_ratio=ratio)
    return ComputeOverlap().assign(lower(graph, target), context)


def test_weights_are_loaded_ahead_and_time_is_won() -> None:
    target = FakeTarget(hbm=1000.0)
    placement = placed(layers(6), target)
    loads = [t for t in placement.graph.tasks if t.kind == "load"]
    assert [t.name for t in loads] == [f"mm{i}.load" for i in range(1, 6)]  # nothing before mm0
    assert {placement.stream[t.id] for t in loads} == {1}
    single = SingleStream().assign(lower(layers(6), target), StrategyContext(target, 1))
    times = [
        evaluate("x", p, target, FakeEvaluator(target)).makespan_ns for p in (placement, single)
    ]
    assert times[0] < times[1]


def test_overlap_ratio_is_the_largest_share_of_a_tasks_loads() -> None:
    target = FakeTarget(hbm=1000.0)
    before = {t.name: t for t in lower(layers(3), target).tasks}
    placement = placed(layers(3), target, ratio=0.6)
    after = {t.name: t for t in placement.graph.tasks}
    loads = [t for t in placement.graph.tasks if t.kind == "load"]
    assert len(loads) == 2
    for load in loads:
        kernel, rest = (found[load.name.removesuffix(".load")] for found in (before, after))
        assert load.demand.load_bytes == 0.6 * kernel.demand.load_bytes
        assert rest.demand.load_bytes == 0.4 * kernel.demand.load_bytes
        assert rest.demand.cube_us == kernel.demand.cube_us
    assert not any(t.kind == "load" for t in placed(layers(3), target, ratio=0.0).graph.tasks)


def test_no_load_where_bandwidth_is_full_or_the_gain_is_less_than_the_syncs() -> None:
    full = FakeTarget(hbm=1.0)  # loads take all the time, computing next to none
    loads = [t for t in placed(layers(4), full).graph.tasks if t.kind == "load"]
    assert sum(t.demand.load_bytes for t in loads) < 100
    dear = FakeTarget(hbm=1000.0, event_us=50.0)
    assert placed(layers(4), dear).used == 1


def test_one_stream_or_no_budget_means_no_loads() -> None:
    target = FakeTarget(hbm=1000.0)
    assert placed(layers(3), target, streams=1).used == 1
    none = target.with_limits(prefetch_bytes=0)
    assert placed(layers(3), none).used == 1


def test_a_kernel_the_user_placed_stays_whole() -> None:
    placement = placed(layers(3), FakeTarget(hbm=1000.0), mm1=1)
    names = {t.name for t in placement.graph.tasks}
    assert "mm1.load" not in names
    assert "mm2.load" in names


def test_a_table_of_which_rows_are_read_is_not_loaded() -> None:
    graph = Graph("embedding")
    ids = graph.add_input("ids", tensor("i64", (4,)))
    table = graph.add_constant("table", Constant.absent(tensor("f32", (10_000, 64))))
    before = graph.emit("Tanh", [ids], tensor("i64", (4,)), stem="before")
    y = graph.emit("Gather", [table, before], tensor("f32", (4, 64)), stem="gather")
    graph.set_outputs([y])

    class Sparse(FakeTarget):
        def demand(self, graph, op):  # type: ignore[no-untyped-def]
            from gecompiler.ir.schedule import Demand

            rows = 0.0 if op.op_type == "Tanh" else 4.0 * 64 * 4
            return Demand(load_bytes=rows, store_bytes=rows, vector_us=100.0, vector_cores=1)

    assert not any(t.kind == "load" for t in placed(graph, Sparse()).graph.tasks)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    count=st.integers(1, 12),
    streams=st.integers(2, 4),
    budget=st.sampled_from([3000, 5000, 9000, 20000]),
)
def test_what_is_loaded_and_not_used_stays_within_the_budget(
    seed: int, count: int, streams: int, budget: int
) -> None:
    """In the worst order that the syncs allow: all loads that can be done before a kernel is."""
    rng = random.Random(seed)
    target = FakeTarget(hbm=rng.choice((200.0, 1000.0))).with_limits(prefetch_bytes=budget)
    placement = placed(layers(count, rng.choice((16, 32))), target, rng.choice((0.3, 1.0)), streams)
    schedule = schedule_of(synchronise(placement, target), target, "x")
    net = nx.DiGraph((e.producer, e.consumer) for e in schedule.events)
    net.add_nodes_from(t.id for t in schedule.tasks)
    for tasks in schedule.streams.values():
        net.add_edges_from((a.id, b.id) for a, b in itertools.pairwise(tasks))
    kernels = {t.name: t.id for t in schedule.tasks if t.kind == "kernel"}
    loads = [t for t in schedule.tasks if t.kind == "load"]
    for kernel in kernels.values():
        after = nx.descendants(net, kernel) | {kernel}
        held = [
            t.demand.load_bytes
            for t in loads
            if t.id not in after and kernels[t.name.removesuffix(".load")] in after
        ]
        assert sum(held) <= budget
