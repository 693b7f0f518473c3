"""How fast the simulator is, and that it stays near-linear."""

from __future__ import annotations

import random
import time

import pytest

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.schedule import Demand, Event, Schedule, Task

DEVICE = load_device("ascend910")


def big_schedule(count: int, streams: int = 4) -> Schedule:
    """Tasks that load, compute and store, no two alike; every fifth waits for another stream."""
    draw = random.Random(7)
    orders, last = [0] * streams, [-1] * streams
    tasks: list[Task] = []
    events: list[Event] = []
    for i in range(count):
        stream = draw.randrange(streams)
        demand = Demand(
            load_bytes=draw.uniform(1e5, 5e7),
            store_bytes=draw.uniform(1e5, 2e7),
            l2_bytes=draw.uniform(1e6, 2e8),
            cube_us=draw.uniform(0, 2000),
            vector_us=draw.uniform(0, 2000),
            cube_cores=draw.randint(1, 32),
            vector_cores=draw.randint(1, 32),
            fixed_us=draw.uniform(1, 5),
            tiles=draw.randint(1, 40),
        )
        tasks.append(Task(i, f"t{i}", "kernel", stream, orders[stream], demand=demand))
        other = draw.randrange(streams)
        if i % 5 == 0 and other != stream and last[other] >= 0:
            events.append(Event(last[other], i, "data"))
        orders[stream] += 1
        last[stream] = i
    return Schedule("big", "ascend910", "x", tuple(tasks), tuple(events), (), DEVICE.limits)


def seconds(count: int) -> float:
    best = float("inf")
    plan = big_schedule(count)
    for _ in range(2):
        start = time.process_time()
        timeline = Simulator(DEVICE)(plan)
        best = min(best, time.process_time() - start)
        assert len(timeline.spans) == count
    return best


@pytest.mark.slow
def test_a_hundred_thousand_tasks_take_seconds_and_grow_linearly() -> None:
    small, large = seconds(10_000), seconds(100_000)
    assert large <= 5.0
    assert large <= 12 * small


def test_ten_thousand_tasks_are_quick() -> None:
    assert seconds(10_000) <= 2.0
