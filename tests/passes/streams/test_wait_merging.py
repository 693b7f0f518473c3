"""Merged waits: fewer events, no longer time, still safe."""

from __future__ import annotations

import random

from fakes import FakeEvaluator, FakeTarget, random_dag, random_graph, random_placement, task_graph

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.scheduling.task_graph import Dep
from gecompiler.passes.streams.evaluation import Evaluated, evaluate, schedule_of, synchronise
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
    assert after.synced.plan.events[0].tensors == ()
    assert after.makespan_ns <= before.makespan_ns
    assert after.synced.plan.ge_rule_events == before.synced.plan.ge_rule_events


def test_a_merge_that_would_take_longer_is_left() -> None:
    graph = task_graph(4, [(0, 2), (1, 3)], [1.0, 50.0, 50.0, 1.0])
    placement = Placement(graph, (0, 0, 1, 1), (0, 1, 2, 3))
    target = FakeTarget()
    before = evaluate("hand", placement, target, FakeEvaluator(target))
    evaluator = FakeEvaluator(target)
    assert merge_waits(before, target, evaluator) is before
    assert evaluator.runs == 1  # it is tried once


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


def test_a_merged_wait_keeps_the_reasons_of_both_and_the_figures_of_the_plan() -> None:
    graph = task_graph(5, [], [1.0, 1.0, 50.0, 1.0, 1.0])
    placement = Placement(graph, (0, 0, 1, 1, 1), (0, 1, 2, 3, 4))
    target = FakeTarget()
    needed = [
        Dep(0, 3, "data", "a"),
        Dep(0, 3, "buffer", "b"),
        Dep(1, 4, "control"),
        Dep(1, 4, "data", "a"),
    ]
    synced = synchronise(placement, target, needed)
    timeline = FakeEvaluator(target)(schedule_of(synced, target, "hand"))
    after = merge_waits(Evaluated("hand", synced, timeline), target, FakeEvaluator(target))
    (event,) = after.synced.plan.events
    assert (event.producer, event.consumer, event.kind) == (1, 3, "data")
    assert event.tensors == ("a", "b")
    figures = [
        (p.cross_stream_dependencies, p.ge_rule_events) for p in (synced.plan, after.synced.plan)
    ]
    assert figures == [(2, 2), (2, 2)]
    assert (after.strategy, after.synced.primitive) == ("hand", "event")
    reasons = {(d.kind, d.tensor) for d in after.synced.added if (d.producer, d.consumer) == (1, 3)}
    assert reasons == {("data", "a"), ("data", "b")}
    assert after.timeline == FakeEvaluator(target)(schedule_of(after.synced, target, "hand"))


def test_the_evaluator_sees_the_strategy_that_the_schedule_is_of() -> None:
    graph = task_graph(5, [(0, 3), (1, 4)], [1.0, 1.0, 50.0, 1.0, 1.0])
    placement = Placement(graph, (0, 0, 1, 1, 1), (0, 1, 2, 3, 4))
    target, seen = FakeTarget(), []
    fake = FakeEvaluator(target)

    def evaluator(schedule: Schedule) -> Timeline:
        seen.append(schedule.strategy)
        return fake(schedule)

    before = evaluate("by hand", placement, target, evaluator)
    assert merge_waits(before, target, evaluator).strategy == "by hand"
    assert set(seen) == {"by hand"}


def test_one_merge_refused_is_no_reason_to_leave_the_next() -> None:
    """Streams 0 and 1 meet twice: the first pair of waits must stay, the second can be one."""
    edges = [(0, 2), (1, 3), (4, 7), (5, 8)]
    us = [1.0, 50.0, 50.0, 1.0, 1.0, 1.0, 200.0, 1.0, 1.0]
    graph = task_graph(9, edges, us)
    placement = Placement(graph, (0, 0, 1, 1, 0, 0, 1, 1, 1), tuple(range(9)))
    target = FakeTarget()
    before = evaluate("hand", placement, target, FakeEvaluator(target))
    after = merge_waits(before, target, FakeEvaluator(target))
    assert [(e.producer, e.consumer) for e in after.synced.plan.events] == [(0, 2), (1, 3), (5, 7)]
    assert after.makespan_ns == before.makespan_ns
