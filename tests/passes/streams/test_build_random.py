"""Every schedule that is built is safe, under every strategy, on random graphs."""

from __future__ import annotations

import random

import pytest
from brute_force import is_safe, run_randomly
from fakes import FakeEvaluator, FakeTarget, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)

STRATEGIES = ("single", "default", "critical_path", "compute_overlap", "auto")


def build(graph, target=None, user=None, **options):
    target = target or FakeTarget()
    return build_schedule(
        graph,
        target,
        FakeEvaluator(target),
        ScheduleOptions(**options),
        user or UserControl(),
        Diagnostics(),
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 18), controls=st.booleans())
def test_built_schedules_are_safe(strategy: str, seed: int, ops: int, controls: bool) -> None:
    graph = random_graph(seed, ops, controls=controls)
    result = build(graph, strategy=strategy, overlap_ratio=1.0)
    assert result.schedule.findings() == []
    assert is_safe(result.schedule)
    assert all(run_randomly(result.schedule, random.Random(i)) for i in range(3))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 18))
def test_bounds_and_times_are_in_order(seed: int, ops: int) -> None:
    for strategy in STRATEGIES:
        result = build(random_graph(seed, ops), FakeTarget(copies=4), strategy=strategy)
        assert result.lower_bound_us <= result.best_found_us <= result.makespan_us
        assert max(result.bounds.values()) == result.lower_bound_us
        assert result.live_memory_bytes <= result.peak_memory_bytes
        if strategy == "auto":
            assert result.makespan_us <= result.single_stream_us


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_op_is_in_one_task(seed: int) -> None:
    graph = random_graph(seed, 15)
    result = build(graph, strategy="critical_path")
    ops = [name for task in result.schedule.tasks for name in task.ops]
    assert sorted(ops) == sorted(op.name for op in graph.ops)


def test_same_input_same_schedule() -> None:
    for strategy in STRATEGIES:
        one = build(random_graph(7, 18), strategy=strategy).schedule
        assert build(random_graph(7, 18), strategy=strategy).schedule == one
