from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from gecompiler.backends.execution.run_order import Step, happens_before_order, steps
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Event, Limits, Schedule, Task
from gecompiler.ir.timeline import Span, Timeline

LIMITS = Limits(8, 64, 1000, 0, 1, 1)


def schedule(streams, events=()):
    tasks = [Task(i, f"t{i}", "kernel", s, streams[:i].count(s)) for i, s in enumerate(streams)]
    waits = tuple(Event(a, b, "data") for a, b in events)
    return Schedule("m", "d", "s", tuple(tasks), waits, (), LIMITS)


def timeline(*times):
    return Timeline(
        tuple(Span(i, f"t{i}", "", 0, 0, s, e, e - s) for i, (s, e) in enumerate(times))
    )


def words(found):
    return " ".join(f"{step.what[0]}{step.task}" for step in found)


def test_at_one_instant_ends_come_before_starts():
    found = steps(schedule([0, 1, 2]), timeline((0, 10), (0, 4), (4, 10)), None)
    assert words(found) == "s0 s1 e1 s2 e0 e2"


def test_tasks_without_duration_follow_what_they_wait_for():
    made = schedule([0, 1, 2], [(2, 1), (1, 0)])
    assert words(steps(made, timeline((5, 5), (5, 5), (5, 5)), None)) == "s2 e2 s1 e1 s0 e0"
    assert words(steps(made, timeline((5, 9), (5, 5), (0, 5)), None)) == "s2 e2 s1 e1 s0 e0"


def test_without_times_tasks_run_one_by_one_in_happens_before_order():
    made = schedule([0, 1, 0], [(2, 1)])
    assert words(steps(made, None, None)) == "s0 e0 s2 e2 s1 e1"
    assert words(steps(made, None, [2, 0, 1])) == "s2 e2 s0 e0 s1 e1"


def test_a_cycle_is_an_error_that_names_a_task():
    with pytest.raises(ScheduleError, match="'t0' waits for a task that waits for it"):
        happens_before_order(schedule([0, 0], [(1, 0)]))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_steps_follow_the_times_and_happens_before(data):
    count = data.draw(st.integers(1, 9))
    streams = [data.draw(st.integers(0, 2)) for _ in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b) if streams[a] != streams[b]]
    events = [p for p in pairs if data.draw(st.integers(0, 3)) == 0]
    made = schedule(streams, events)
    before = {b: [a for a, x in events if x == b] for b in range(count)}
    for tasks in made.streams.values():
        for a, b in pairwise(tasks):
            before[b.id].append(a.id)
    times = []
    for i in range(count):
        start = max((times[a][1] for a in before[i]), default=0) + data.draw(st.integers(0, 2))
        times.append((start, start + data.draw(st.integers(0, 3))))
    found = steps(made, timeline(*times), None)
    assert len(found) == 2 * count
    place = {step: i for i, step in enumerate(found)}
    for i in range(count):
        assert place[Step("start", i)] < place[Step("end", i)]
        assert all(place[Step("end", a)] < place[Step("start", i)] for a in before[i])
    clock = [times[s.task][s.what == "end"] for s in found]
    assert clock == sorted(clock)
