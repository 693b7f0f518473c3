"""Stores behind their kernels: where they pay, within the budget, and the same numbers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from fakes import FakeEvaluator, FakeTarget, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import tensor
from gecompiler.passes.memory.plan import plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.streams.compute_overlap import ComputeOverlap
from gecompiler.passes.streams.evaluation import evaluate, schedule_of, synchronise
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import Placement, StrategyContext
from gecompiler.passes.streams.writeback import stores_behind

ROWS, WIDTH = 32, 32


def outputs(count: int, absent: bool = False) -> Graph:
    """Products that the graph gives out and nobody waits for, beside a chain that has to go on."""
    graph = Graph("outputs", {"": 18})
    type_ = tensor("f32", (ROWS, WIDTH))
    x = graph.add_input("x", type_)
    rng = np.random.default_rng(0)
    given_out = []
    for i in range(count):
        data = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
        found = Constant.absent(tensor("f32", (WIDTH, WIDTH)))
        w = graph.constant_of(f"w{i}", data) if not absent else graph.add_constant(f"w{i}", found)
        given_out.append(graph.emit("MatMul", [x, w], type_, stem=f"out{i}"))
        x = graph.emit("Tanh", [x], type_, stem=f"chain{i}")
    graph.set_outputs([*given_out, x])
    return graph


def placed(graph: Graph, target: FakeTarget, streams: int = 3) -> Placement:
    context = StrategyContext(target, streams, overlap_ratio=0.0)
    return ComputeOverlap().assign(lower(graph, target), context)


def test_results_that_nobody_waits_for_are_stored_behind() -> None:
    target = FakeTarget(hbm=1000.0, event_us=1.0)
    placement = placed(outputs(4), target)
    stores = [t for t in placement.graph.tasks if t.kind == "store"]
    assert {t.name for t in stores} <= {f"out{i}.store" for i in range(4)}
    assert len(stores) >= 2
    assert {placement.stream[t.id] for t in stores} == {2}
    kernels = {t.name: t for t in placement.graph.tasks}
    for store in stores:
        kernel = kernels[store.name.removesuffix(".store")]
        assert (kernel.demand.store_bytes, kernel.writes) == (0.0, ())
        assert store.demand.store_bytes == ROWS * WIDTH * 4
        assert store.id in placement.graph.succs[kernel.id]
    single = SingleStream().assign(lower(outputs(4), target), StrategyContext(target, 1))
    times = [
        evaluate("x", p, target, FakeEvaluator(target)).makespan_ns for p in (placement, single)
    ]
    assert times[0] < times[1]


def test_a_result_that_is_needed_at_once_is_stored_by_its_kernel() -> None:
    graph = Graph("chain", {"": 18})
    type_ = tensor("f32", (ROWS, WIDTH))
    x = graph.add_input("x", type_)
    for _ in range(5):
        x = graph.emit("Tanh", [x], type_)
    graph.set_outputs([x])
    target = FakeTarget(hbm=1000.0, event_us=1.0)
    assert stores_behind(lower(graph, target), StrategyContext(target, 3), ()) == []


def test_what_does_not_fit_the_chip_or_gains_too_little_stays() -> None:
    small = FakeTarget(hbm=1000.0).with_limits(prefetch_bytes=ROWS * WIDTH * 4 - 1)
    assert stores_behind(lower(outputs(4), small), StrategyContext(small, 3), ()) == []
    slow = FakeTarget(hbm=1000.0, event_us=50.0)
    assert stores_behind(lower(outputs(4), slow), StrategyContext(slow, 3), ()) == []


def test_one_result_at_a_time_is_on_chip() -> None:
    target = FakeTarget(hbm=1000.0, event_us=1.0)
    found = stores_behind(lower(outputs(6), target), StrategyContext(target, 3), ())
    assert [s.room_after for s in found] == [None, *(s.kernel for s in found[:-1])]


@given(st.integers(0, 10**9), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_every_split_is_sound_and_gives_the_same_numbers(seed: int, streams: int) -> None:
    rng = random.Random(seed)
    graph = outputs(rng.randint(1, 6))
    target = FakeTarget(hbm=rng.choice([300.0, 1000.0, 4000.0]), event_us=rng.choice([0.2, 1.5]))
    context = StrategyContext(target, streams, overlap_ratio=rng.choice([0.0, 0.7]))
    placement = ComputeOverlap().assign(lower(graph, target), context)
    synced = synchronise(placement, target)
    memory = plan_memory(placement, synced.plan.clock, synced.where)
    schedule = schedule_of(synced, target, "compute_overlap", memory)
    assert schedule.findings() == []
    arrays = {"x": np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float32)}
    found = execute(graph, schedule, FakeEvaluator(target)(schedule), arrays)
    for name, expected in run_reference(graph, arrays).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_random_graphs_are_sound(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(seed, rng.randint(3, 20), controls=True)
    target = FakeTarget(hbm=1000.0, event_us=0.3)
    placement = placed(graph, target, rng.randint(2, 4))
    synced = synchronise(placement, target)
    memory = plan_memory(placement, synced.plan.clock, synced.where)
    assert schedule_of(synced, target, "x", memory).findings() == []


def test_a_store_that_nothing_was_made_for_is_an_error() -> None:
    target = FakeTarget(hbm=1000.0, event_us=1.0)
    graph = outputs(4)
    synced = synchronise(placed(graph, target), target)
    memory = plan_memory(synced.placement, synced.plan.clock, synced.where)
    schedule = schedule_of(synced, target, "x", memory)
    tasks = tuple(replace(t, ops=()) if t.name == "out0" else t for t in schedule.tasks)
    broken = replace(schedule, tasks=tasks)
    arrays = {"x": np.zeros((ROWS, WIDTH), np.float32)}
    with pytest.raises(ScheduleError, match="out0"):
        execute(graph, broken, FakeEvaluator(target)(broken), arrays)
