"""Where the strategy pipeline puts micro-batches, and the order it keeps them in."""

from __future__ import annotations

import random

import numpy as np
import pytest
from brute_force import is_safe, run_randomly
from fakes import FakeEvaluator, FakeTarget
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.execution.executor import execute, run_reference
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import OpInfo
from gecompiler.ir.schedule import Control
from gecompiler.ir.types import tensor
from gecompiler.passes.micro_batches.micro_batch import MicroBatched, micro_batch
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    ScheduleResult,
    SyncPoint,
    UserControl,
    build_schedule,
)
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.pipeline import Pipeline
from gecompiler.passes.streams.strategy import Placement, StrategyContext


def layers(batch: int = 8, count: int = 3, width: int = 16) -> Graph:
    """Layers of a product and an activation, beside a table that all samples share."""
    graph = Graph("layers", {"": 20})
    shape = tensor("f32", (batch, width))
    x = graph.add_input("x", shape)
    row = graph.add_input("row", tensor("f32", (1, width)))
    table = graph.emit("Tanh", [row], tensor("f32", (1, width)), stem="table")
    for i in range(count):
        weight = graph.constant_of(f"w{i}", np.eye(width, dtype=np.float32) * (i + 1))
        info = OpInfo(group=f"Layer {i} product")
        x = graph.emit("MatMul", [x, weight], shape, stem=f"product{i}", info=info)
        x = graph.emit("Add", [x, table], shape, stem=f"add{i}")
        x = graph.emit("Sigmoid", [x], shape, stem=f"act{i}")
    graph.set_outputs([x])
    return graph


def placed(
    parts: int, streams: int, depth: int, lag: float = 1.0, **more: object
) -> tuple[Placement, MicroBatched]:
    target = FakeTarget()
    split = micro_batch(layers(**more), parts)  # type: ignore[arg-type]
    context = StrategyContext(target, streams, pipeline_depth=depth, parts=split.part_of)
    return Pipeline(lag).assign(lower(split.graph, target), context), split


def precedes(graph: TaskGraph) -> list[set[int]]:
    """All tasks that dependencies order before each task."""
    before: list[set[int]] = []
    for task in range(len(graph)):
        own = set(graph.preds[task])
        before.append(own.union(*(before[p] for p in own)))
    return before


@settings(max_examples=60, deadline=None)
@given(
    parts=st.integers(2, 6),
    streams=st.integers(1, 4),
    depth=st.integers(1, 5),
    lag=st.sampled_from([0.0, 0.5, 1.0, 4.0, 100.0]),
)
def test_each_micro_batch_is_on_one_stream_and_waits_for_the_one_depth_before(
    parts: int, streams: int, depth: int, lag: float
) -> None:
    placement, split = placed(parts, streams, depth, lag)
    graph = placement.graph
    members: dict[int, list[int]] = {}
    for task in graph.tasks:
        if task.name in split.part_of:
            members.setdefault(split.part_of[task.name], []).append(task.id)
    assert len(members) == parts
    lanes = min(streams, depth)
    for part, tasks in members.items():
        assert {placement.stream[t] for t in tasks} == {part % lanes}
    before = precedes(graph)
    for part in range(depth, parts):
        ended = set(members[part - depth])
        assert all(ended <= before[t] for t in members[part])


def test_micro_batches_start_one_after_the_other() -> None:
    placement, split = placed(4, 4, 4, lag=1.0)
    graph = placement.graph
    lags = [c for c in graph.controls if c.sync_type == "pipeline_lag"]
    pairs = [
        (split.part_of[graph.tasks[c.producer].name], split.part_of[graph.tasks[c.consumer].name])
        for c in lags
    ]
    assert pairs == [(0, 1), (1, 2), (2, 3)]
    together, _ = placed(4, 4, 4, lag=0.0)
    first = {c.producer for c in together.graph.controls if c.sync_type == "pipeline_lag"}
    assert len(first) == 3


def test_what_joins_the_parts_is_on_the_last_stream_and_what_feeds_them_on_the_first() -> None:
    placement, _ = placed(3, 3, 3)
    streams = {t.name: placement.stream[t.id] for t in placement.graph.tasks}
    assert streams["table"] == 0
    assert next(s for name, s in streams.items() if name.endswith("/join")) == 2


def test_orders_of_the_user_that_go_against_the_pipeline_win() -> None:
    target = FakeTarget()
    split = micro_batch(layers(), 2)
    tasks = lower(split.graph, target)
    at = {t.name: t.id for t in tasks.tasks}
    backwards = tasks.with_controls([Control(at["act2#mb1"], at["product0#mb0"], "user", "data")])
    context = StrategyContext(target, 2, pipeline_depth=2, parts=split.part_of)
    placement = Pipeline().assign(backwards, context)
    assert [c.origin for c in placement.graph.controls] == ["user"]
    assert sorted(placement.sequence) == list(range(len(tasks)))


def build(
    graph: Graph,
    user: UserControl | None = None,
    diagnostics: Diagnostics | None = None,
    target: FakeTarget | None = None,
    **options: object,
) -> ScheduleResult:
    target = target or FakeTarget(copies=4)
    given = ScheduleOptions(strategy="pipeline", **options)  # type: ignore[arg-type]
    collected = diagnostics if diagnostics is not None else Diagnostics()
    evaluator = FakeEvaluator(target)
    return build_schedule(graph, target, evaluator, given, user or UserControl(), collected)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(2, 9), streams=st.integers(2, 4), depth=st.integers(2, 4), seed=st.integers()
)
def test_built_schedules_are_safe_and_give_the_same_numbers(
    batch: int, streams: int, depth: int, seed: int
) -> None:
    graph = layers(batch)
    result = build(graph, num_streams=streams, pipeline_depth=depth)
    assert result.schedule.findings() == []
    assert is_safe(result.schedule)
    assert run_randomly(result.schedule, random.Random(seed))
    assert sum(result.micro_batches) == batch
    assert max(result.micro_batches) - min(result.micro_batches) <= 1
    assert result.used <= min(streams, depth)
    assert result.lower_bound_us <= result.best_found_us <= result.makespan_us
    assert result.period_us <= result.makespan_us
    arrays = {
        "x": np.linspace(-1, 1, batch * 16, dtype=np.float32).reshape(batch, 16),
        "row": np.ones((1, 16), np.float32),
    }
    found = execute(result.graph, result.schedule, result.timeline, arrays)
    for name, value in run_reference(graph, arrays).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)


def test_the_fastest_of_what_was_tried_is_taken() -> None:
    result = build(layers(8), num_streams=3, pipeline_depth=3)
    times = [row.makespan_us for row in result.candidates]
    assert len(times) > 3
    assert result.makespan_us == min(times)
    assert sum(row.chosen for row in result.candidates) == 1
    assert {row.strategy for row in result.candidates} == {"pipeline"}


def test_a_sync_point_holds_within_each_micro_batch() -> None:
    graph = Graph("branches", {"": 20})
    shape = tensor("f32", (8, 16))
    x = graph.add_input("x", shape)
    first = graph.emit("Tanh", [x], shape, stem="first")
    second = graph.emit("Relu", [x], shape, stem="second")
    graph.set_outputs([graph.emit("Add", [first, second], shape)])
    user = UserControl({}, [SyncPoint("Relu", "Tanh")])
    result = build(graph, user, num_streams=2)
    tasks = result.schedule.tasks
    pairs = [
        (tasks[c.producer].name, tasks[c.consumer].name)
        for c in result.schedule.controls
        if c.origin == "user"
    ]
    parts = range(len(result.micro_batches))
    assert len(parts) >= 2
    assert sorted(pairs) == [(f"second#mb{i}", f"first#mb{i}") for i in parts]


@pytest.mark.parametrize(
    ("options", "why"),
    [({"num_streams": 1}, "there is one stream"), ({"pipeline_depth": 1}, "pipeline_depth is 1")],
)
def test_nothing_to_overlap_is_said(options: dict[str, int], why: str) -> None:
    diagnostics = Diagnostics()
    result = build(layers(8), diagnostics=diagnostics, **options)
    warning = next(w for w in diagnostics if w.code == "pipeline-not-possible")
    assert why in warning.message
    assert result.micro_batches == ()
    assert result.chosen in ("single", "critical_path")
    assert result.makespan_us <= result.single_stream_us


def test_slower_than_one_stream_is_obeyed_and_told() -> None:
    diagnostics = Diagnostics()
    result = build(layers(2, 1, 2), diagnostics=diagnostics, target=FakeTarget(event_us=50.0))
    assert result.chosen == "pipeline"
    assert result.makespan_us > result.single_stream_us
    assert "slower-than-single" in [w.code for w in diagnostics]
