"""The distance of iterations that are issued back to back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeEvaluator, FakeTarget

from gecompiler.ir.schedule import Demand, Event, Limits, Schedule, StateAlias, Task
from gecompiler.passes.scheduling.steady_period import steady_period_ns

LIMITS = Limits(4, 64, 1000, 1000, 1, 1)
WORK = Demand(vector_us=10.0, vector_cores=1)


def schedule(streams: list[int], events: list[tuple[int, int]], arena: int = 100) -> Schedule:
    tasks: list[Task] = []
    for i, stream in enumerate(streams):
        order = sum(t.stream == stream for t in tasks)
        tasks.append(Task(i, f"t{i}", "kernel", stream, order, demand=WORK))
    waits = tuple(Event(p, c, "data", event_id=n) for n, (p, c) in enumerate(events))
    return Schedule("m", "fake", "pipeline", tuple(tasks), waits, (), LIMITS, arena_bytes=arena)


def period(made: Schedule, weights: int = 0) -> float:
    target = FakeTarget(task_gap_us=0.0, event_us=0.0)
    evaluator = FakeEvaluator(target)
    makespan = evaluator(made).makespan_ns
    return steady_period_ns(made, makespan, weights, evaluator) / 1000


def test_stages_on_two_streams_overlap() -> None:
    assert period(schedule([0, 1], [(0, 1)])) == 10.0  # latency is 20


def test_the_longest_stage_decides() -> None:
    assert period(schedule([0, 1, 1, 2], [(0, 1), (2, 3)])) == 20.0  # latency is 40


def test_an_iteration_waits_for_the_last_but_one() -> None:
    made = schedule([0, 1, 2, 3], [(0, 1), (1, 2), (2, 3)])
    assert period(made) == pytest.approx(20.0)  # two in 40: memory for no more


@pytest.mark.parametrize(
    "made",
    [
        schedule([0, 0], []),
        schedule([0, 1], [(0, 1)], arena=501),
        replace(schedule([0, 1], [(0, 1)]), states=(StateAlias("past", "present", 4),)),
    ],
    ids=["one stream", "no memory for two", "state"],
)
def test_nothing_overlaps(made: Schedule) -> None:
    assert period(made) == 20.0


def test_weights_are_needed_once() -> None:
    assert period(schedule([0, 1], [(0, 1)], arena=900), weights=850) == 10.0
