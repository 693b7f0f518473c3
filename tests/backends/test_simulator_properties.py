"""The simulator by property: order, capacity, conservation, bounds, determinism."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.schedule import Demand, Event, Schedule, Task

DEVICE = dataclasses.replace(
    load_device("ascend910b"), hbm_bandwidth_gb_per_s=1000.0, hbm_efficiency_fraction=1.0
)


def side_by_side(queues: list[list[Demand]]) -> Schedule:
    """One stream per list of demands."""
    tasks = [
        (stream, order, demand)
        for stream, queue in enumerate(queues)
        for order, demand in enumerate(queue)
    ]
    made = tuple(Task(i, f"t{i}", "kernel", s, o, demand=d) for i, (s, o, d) in enumerate(tasks))
    return Schedule("m", "d", "s", made, (), (), DEVICE.limits)


demands = st.builds(
    Demand,
    load_bytes=st.sampled_from([0.0, 1e3, 1e6, 7.7e6]),
    store_bytes=st.sampled_from([0.0, 5e5, 3e6]),
    l2_bytes=st.sampled_from([0.0, 2e7]),
    cube_us=st.sampled_from([0.0, 3.3, 240.0]),
    vector_us=st.sampled_from([0.0, 17.0, 500.0]),
    cube_cores=st.integers(0, 24),
    vector_cores=st.integers(0, 48),
    fixed_us=st.sampled_from([0.0, 0.1234, 3.0]),
    tiles=st.integers(1, 9),
    link_bytes=st.sampled_from([(), (), (), (("hccs:a", 1e6),)]),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ranks, streams = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    orders: dict[tuple[int, int], int] = {}
    tasks: list[Task] = []
    for i in range(draw(st.integers(0, 14))):
        place = (draw(st.integers(0, ranks - 1)), draw(st.integers(0, streams - 1)))
        order = orders[place] = orders.get(place, -1) + 1
        tasks.append(
            Task(i, f"t{i}", "kernel", place[1], order, demand=draw(demands), rank=place[0])
        )
    events: list[Event] = []
    if len(tasks) > 1:
        for _ in range(draw(st.integers(0, 6))):
            a = draw(st.integers(0, len(tasks) - 2))
            events.append(Event(a, draw(st.integers(a + 1, len(tasks) - 1)), "data"))
    return Schedule("m", "d", "s", tuple(tasks), tuple(events), (), DEVICE.limits)


PROFILES = [DEVICE, load_device("ascend910"), load_device("ascend910b")]
profiles = st.sampled_from(PROFILES)


@settings(max_examples=250, deadline=None)
@given(schedules(), profiles)
def test_order_capacity_and_determinism(plan: Schedule, device: Any) -> None:
    timeline = Simulator(device)(plan)
    timeline.verify()
    gap = int(device.task_gap_us * 1000)
    for spans in timeline.streams.values():
        for before, after in pairwise(spans):
            assert plan.tasks[before.task].order < plan.tasks[after.task].order
            assert after.start_ns >= before.end_ns + gap - 1
    for event in plan.events:
        end = timeline.spans[event.producer].end_ns
        assert timeline.spans[event.consumer].start_ns >= end + device.event_us * 1000 - 1
    for span in timeline.spans:
        assert span.duration_ns >= span.alone_ns - 1
        assert span.alone_ns == pytest.approx(
            device.alone_us(plan.tasks[span.task].demand) * 1000, abs=1
        )
        assert span.bound_by
    for usage in timeline.usage:
        assert all(0.0 <= f <= 1.0 for f in usage.fractions)
        assert list(usage.times_ns) == sorted(set(usage.times_ns))
    assert Simulator(device)(plan) == timeline


@settings(max_examples=200, deadline=None)
@given(schedules(), profiles)
def test_work_is_conserved_and_no_bound_is_beaten(plan: Schedule, device: Any) -> None:
    timeline = Simulator(device)(plan)
    several = len({t.rank for t in plan.tasks}) > 1
    wanted: dict[str, float] = {}
    for task in plan.tasks:
        for resource, work in device.work(task.demand).items():
            own = f"{task.rank}:{resource}" if several and ":" not in resource else resource
            wanted[own] = wanted.get(own, 0.0) + work
    makespan = timeline.makespan_ns
    for usage in timeline.usage:
        done = usage.mean(makespan) * makespan / 1000 * usage.capacity
        noise = usage.capacity * 1e-3 * (len(usage.times_ns) + 1)
        assert done == pytest.approx(wanted.get(usage.resource, 0.0), rel=1e-6, abs=noise)
        assert makespan / 1000 >= wanted.get(usage.resource, 0.0) / usage.capacity - 1e-6
    assert makespan / 1000 >= critical_path_us(plan, device) - 1e-6


def critical_path_us(plan: Schedule, device: Any) -> float:
    """Longest way through streams and events with every task alone (ids are topological)."""
    end: dict[int, float] = {}
    last: dict[tuple[int, int], int] = {}
    for task in plan.tasks:
        start = 0.0
        before = last.get((task.rank, task.stream))
        if before is not None:
            start = end[before] + device.task_gap_us
        for event in plan.waits.get(task.id, ()):
            start = max(start, end[event.producer] + device.event_us)
        end[task.id] = start + device.alone_us(task.demand)
        last[task.rank, task.stream] = task.id
    return max(end.values(), default=0.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(demands, max_size=12), profiles)
def test_one_stream_takes_the_sum(queue: list[Demand], device: Any) -> None:
    plan = side_by_side([queue])
    expected = sum(device.alone_us(d) for d in queue) + device.task_gap_us * max(0, len(queue) - 1)
    assert Simulator(device)(plan).makespan_ns == pytest.approx(expected * 1000, abs=1.01)


@settings(max_examples=100, deadline=None)
@given(schedules(), st.data())
def test_one_more_event_is_obeyed(plan: Schedule, data: st.DataObject) -> None:
    if len(plan.tasks) < 2:
        return
    a = data.draw(st.integers(0, len(plan.tasks) - 2))
    b = data.draw(st.integers(a + 1, len(plan.tasks) - 1))
    more = dataclasses.replace(plan, events=(*plan.events, Event(a, b, "user")))
    timeline = Simulator(DEVICE)(more)
    assert timeline.spans[b].start_ns >= timeline.spans[a].end_ns


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=2, max_size=6))
def test_equal_sharing_agrees_with_the_closed_form(works: list[int]) -> None:
    """k memory-bound tasks at once: the shortest ends at k times its work, and so on."""
    plan = side_by_side([[Demand(load_bytes=w * 1e6)] for w in works])
    ends = sorted(s.end_ns for s in Simulator(DEVICE)(plan).spans)
    now, done, left = 0.0, 0, sorted(works)
    for k, work in enumerate(left):
        now += (work - done) * (len(left) - k)
        done = work
        assert ends[k] == pytest.approx(now * 1000, abs=1.01)
