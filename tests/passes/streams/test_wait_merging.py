"""Merged waits: fewer events, no longer time, still safe."""

from __future__ import annotations

import random

from fakes import FakeEvaluator, FakeTarget, random_dag, random_graph, random_placement, task_graph

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams.evaluation import evaluate, schedule_of
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.wait_merging import merge_waits


def test_two_waits_of_which_the_second_producer_is_done_anyway() -> None:
    # Stream 0: 0 1; stream 1: 2 (long) 3 4; 3 waits for 0 and 4 for 1.
    graph = task_graph(5, [(0, 3), (1, 4)], [1.0, 1.0, 50.0, 1.0, 1.0])
    placement = Placement(graph, (0, 0, 1, 1, 1), (0, 1, 2, 3, 4))
    target = FakeTarget()
    before = evaluate("hand", placement, target, FakeEvaluator(target))
    after = merge_waits(before, target, FakeEvaluator(target))
    assert [(e.producer, e.consumer) for e in before.synced.plan.events] == [(0, 3), (1, 4)]
    assert [(e.producer, e.consumer) for e in after.synced.plan.events] == [(1, 3)]
    assert after.makespan_ns <= before.makespan_ns
    assert after.synced.plan.ge_rule_events == before.synced.plan.ge_rule_events


def test_a_merge_that_would_take_longer_is_left() -> None:
    graph = task_graph(4, [(0, 2), (1, 3)], [1.0, 50.0, 50.0, 1.0])
    placement = Placement(graph, (0, 0, 1, 1), (0, 1, 2, 3))
    target = FakeTarget()
    before = evaluate("hand", placement, target, FakeEvaluator(target))
    assert merge_waits(before, target, FakeEvaluator(target)) is before


def test_never_more_events_never_longer_always_safe() -> None:
    saved = 0
    target = FakeTarget()
    for seed in range(200):
        rng = random.Random(seed)
        times = [rng.choice((1.0, 5.0, 20.0)) for _ in range(16)]
        graph = task_graph(16, random_dag(rng, 16, 0.15), times)
        placement = random_placement(graph, rng, rng.randint(2, 4))
        before = evaluate("hand", placement, target, FakeEvaluator(target))
        after = merge_waits(before, target, FakeEvaluator(target))
        assert after.makespan_ns <= before.makespan_ns
        assert len(after.synced.plan.events) <= len(before.synced.plan.events)
        assert schedule_of(after.synced, target, "hand").findings() == []
        saved += len(before.synced.plan.events) - len(after.synced.plan.events)
    assert saved > 25


def test_as_an_option_of_every_strategy_with_memory_and_notifies() -> None:
    target = FakeTarget()
    fewer = 0
    for seed in range(60):
        graph = random_graph(seed, 16)
        found = []
        for merge in (False, True):
            options = ScheduleOptions(
                strategy="load_balance:3", merge_waits=merge, sync_primitive="notify"
            )
            found.append(
                build_schedule(
                    graph, target, FakeEvaluator(target), options, UserControl(), Diagnostics()
                )
            )
        plain, merged = found
        assert merged.schedule.findings() == []
        assert merged.events <= plain.events
        assert merged.makespan_us <= plain.makespan_us
        assert merged.best_found_us <= merged.makespan_us
        fewer += plain.events - merged.events
    assert fewer > 0
