"""The simulator's work is small and near-linear."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from growth import calls, growth_of_calls, growth_of_time

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


def simulated(count: int) -> Callable[[], object]:
    plan = big_schedule(count)

    def simulate() -> None:
        assert len(Simulator(DEVICE)(plan).spans) == count

    return simulate


def test_work_grows_with_the_tasks() -> None:
    assert growth_of_calls(simulated, 500, 4_000) < 8 * 1.2
    assert calls(simulated(4_000)) < 400 * 4_000


@pytest.mark.slow
def test_time_grows_with_the_tasks() -> None:
    assert growth_of_time(simulated, 10_000, 80_000, 2) < 8 * 2
