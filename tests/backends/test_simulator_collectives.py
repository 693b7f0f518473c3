"""Collectives costed as a whole: their parts make one step, as slow as the slowest link."""

from __future__ import annotations

import dataclasses
import math

import pytest
from plain_device import DEVICE

from gecompiler.backends.simulator import Simulator
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Communicator, Demand, Event, Link, Schedule, Task
from gecompiler.ir.timeline import Timeline

SIMULATE = Simulator(DEVICE)
HBM, LINK = 1e6, 1e5
"""Bytes per microsecond."""


def step(least: float, link_us: float, name: str = "hccs:0-1", **more: float) -> Demand:
    """Takes ``least`` us at least, in which a link is busy for ``link_us`` of them."""
    return Demand(link_bytes=((name, link_us * LINK),), least_us=least, **more)  # type: ignore[arg-type]


def kernel(us: float) -> Demand:
    return Demand(fixed_us=us)


def built(
    *queues: list[tuple[str, Demand]], world: int = 2, events: tuple[Event, ...] = ()
) -> Schedule:
    """One stream a rank; what is called ``c...`` takes part in collectives of all ranks."""
    tasks: list[Task] = []
    for at, queue in enumerate(queues):
        rank, stream = at % world, at // world
        for order, (name, demand) in enumerate(queue):
            part = name.startswith("c")
            tasks.append(
                Task(
                    len(tasks),
                    f"{rank}:{name}",
                    "collective" if part else "kernel",
                    stream,
                    order,
                    demand=demand,
                    rank=rank,
                    communicator="world" if part else "",
                )
            )
    groups = (Communicator("world", tuple(range(world))),)
    return Schedule("m", "d", "s", tuple(tasks), events, (), DEVICE.limits, communicators=groups)


def times(timeline: Timeline) -> dict[str, tuple[float, float]]:
    return {s.name: (s.start_ns / 1000, s.end_ns / 1000) for s in timeline.spans}


def busy(timeline: Timeline, resource: str) -> list[tuple[float, float]]:
    """(us, share) from each change on, equal neighbours joined."""
    usage = next(u for u in timeline.usage if u.resource == resource)
    found: list[tuple[float, float]] = []
    for at, share in zip(usage.times_ns, usage.fractions, strict=True):
        if not found or found[-1][1] != round(share, 9):
            found.append((at / 1000, round(share, 9)))
    return found


def test_the_parts_last_as_long_as_the_slowest() -> None:
    timeline = SIMULATE(built([("c", step(10, 4))], [("c", step(20, 8))]))
    assert times(timeline) == {"0:c": (0, 20), "1:c": (0, 20)}
    assert [s.alone_ns for s in timeline.spans] == [20_000, 20_000]
    assert [s.bound_by for s in timeline.spans] == ["hccs:0-1", "hccs:0-1"]
    assert busy(timeline, "hccs:0-1") == [(0, 0.6), (20, 0.0)]  # 4 and 8 of 20 us


def test_each_part_uses_its_own_memory_and_the_link_carries_all() -> None:
    parts = [step(10, 2, load_bytes=3 * HBM), step(10, 1, load_bytes=6 * HBM, fixed_us=5)]
    timeline = SIMULATE(built([("c", parts[0])], [("c", parts[1])]))
    assert times(timeline) == {"0:c": (0, 15), "1:c": (0, 15)}
    assert [s.alone_ns for s in timeline.spans] == [10_000, 15_000]
    assert busy(timeline, "0:hbm") == [(0, 0.0), (5, 0.3), (15, 0.0)]
    assert busy(timeline, "1:hbm") == [(0, 0.0), (5, 0.6), (15, 0.0)]
    assert busy(timeline, "hccs:0-1") == [(0, 0.0), (5, 0.3), (15, 0.0)]


def test_who_waits_for_whom_and_how_long() -> None:
    late = [("k", kernel(7)), ("c", step(10, 3))]
    timeline = SIMULATE(
        built([("c", step(10, 3, fixed_us=2))], late, [("c", step(10, 3))], world=3)
    )
    assert times(timeline) == {"0:c": (0, 18), "1:k": (0, 7), "1:c": (8, 18), "2:c": (0, 18)}
    first, _, last, third = timeline.spans
    assert (first.peer, first.peer_ns, first.bound_by) == (last.task, 6_000, "hccs:0-1")
    assert (third.peer, third.peer_ns) == (last.task, 8_000)
    assert (last.peer, last.peer_ns) == (None, 0)


def test_a_part_that_mostly_waits_is_bound_by_its_peers() -> None:
    timeline = SIMULATE(built([("c", step(10, 5))], [("k", kernel(90)), ("c", step(10, 5))]))
    assert [s.bound_by for s in timeline.spans] == ["peers", "fixed", "hccs:0-1"]
    assert timeline.spans[0].peer_ns == 91_000


def test_a_wait_below_a_nanosecond_counts() -> None:
    timeline = SIMULATE(built([("c", step(10, 5))], [("c", step(10, 5, fixed_us=0.0004))]))
    assert timeline.spans[0].peer == 1
    assert (timeline.spans[0].peer_ns, timeline.spans[1].peer_ns) == (1, 0)


def test_kernels_beside_a_collective_share_with_it() -> None:
    whole = Demand(load_bytes=30 * HBM, tiles=10**9)
    part = step(10, 1, load_bytes=10 * HBM)
    timeline = SIMULATE(built([("c", part)], [("c", step(10, 1))], [("k", whole)]))
    assert times(timeline) == {"0:c": (0, 20), "1:c": (0, 20), "0:k": (0, 40)}
    assert busy(timeline, "0:hbm") == [(0, 1.0), (40, 0.0)]
    assert [s.bound_by for s in timeline.spans] == ["hbm", "hbm", "hbm"]


def test_two_collectives_on_one_link_share_it() -> None:
    parts = [[("c", step(10, 5))], [("c", step(10, 5))], [("d", step(10, 10))]]
    timeline = SIMULATE(built(*parts))
    assert times(timeline) == {"0:c": (0, 20), "1:c": (0, 20), "0:d": (0, 20)}


def test_collectives_of_one_stream_go_by_their_place_on_it() -> None:
    plan = built(
        [("c1", step(10, 5)), ("c2", step(4, 2))], [("c1", step(10, 5)), ("c2", step(4, 2))]
    )
    swapped = (
        *plan.tasks[:2],
        *(dataclasses.replace(t, order=1 - t.order) for t in plan.tasks[2:]),
    )
    # rank 1 lists its second collective first; by stream both ranks begin with one of the two
    timeline = SIMULATE(dataclasses.replace(plan, tasks=swapped))
    assert times(timeline)["0:c1"] == times(timeline)["1:c2"] == (0, 10)
    assert times(timeline)["0:c2"] == times(timeline)["1:c1"] == (11, 21)


def test_collectives_of_several_streams_go_by_their_ids() -> None:
    plan = built(
        [("c1", step(10, 5))], [("c1", step(10, 5))], [("c2", step(4, 2))], [("c2", step(4, 2))]
    )
    reversed_ = tuple(
        dataclasses.replace(t, order=0, stream=1 - t.stream) if t.rank else t for t in plan.tasks
    )
    found = times(SIMULATE(dataclasses.replace(plan, tasks=reversed_)))
    assert found["0:c1"] == found["1:c1"]
    assert found["0:c2"] == found["1:c2"]


def test_communicators_of_one_rank_and_unused_ones_are_no_hindrance() -> None:
    plan = built([("c", step(10, 5))], world=1)
    assert times(SIMULATE(plan)) == {"0:c": (0, 10)}
    idle = dataclasses.replace(
        plan, communicators=(*plan.communicators, Communicator("idle", (0, 1)))
    )
    assert times(SIMULATE(idle)) == {"0:c": (0, 10)}


def test_ranks_with_more_or_fewer_parts_are_told_with_their_numbers() -> None:
    plan = built([("c", step(1, 1)), ("c2", step(1, 1))], [("c", step(1, 1))])
    with pytest.raises(ScheduleError) as caught:
        SIMULATE(plan)
    assert "communicator 'world'" in str(caught.value)
    assert "(rank 0: 2, rank 1: 1)" in str(caught.value)
    assert caught.value.where == "m"


def test_ranks_that_wait_for_each_other_are_told_by_stream_and_rank() -> None:
    plan = built(
        [("a", kernel(1))], [("b", kernel(1))], events=(Event(0, 1, "data"), Event(1, 0, "data"))
    )
    with pytest.raises(ScheduleError) as caught:
        SIMULATE(plan)
    assert caught.value.message == (
        "deadlock, 2 tasks never run: '0:a' (rank 0, stream 0) waits for '1:b' (rank 1, stream 0) "
        "waits for '0:a' (rank 0, stream 0)"
    )
    assert caught.value.where == "m"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("demand", "us", "bound", "link"),
    [
        (step(10, 5), 10, "hccs:0-1", 0.5),
        (step(10, 20), 20, "hccs:0-1", 1.0),  # the link needs longer than the steps' sum
        (step(10, 5, load_bytes=20 * HBM), 20, "hbm", 0.25),
        (step(20, 5, load_bytes=20 * HBM), 20, "hbm", 0.25),  # memory is in use all the time
        (step(10, 10, load_bytes=4 * HBM), 10, "hccs:0-1", 1.0),
        (step(10, 0.0), 10, "hbm", 0.0),
        (step(10, 0.0, l2_bytes=1.0), 10, "l2", 0.0),
        # its pace is measured as a whole: no limit of what its few cores can draw
        (step(10, 5, load_bytes=5 * HBM, vector_cores=1), 10, "hccs:0-1", 0.5),
        (step(10, 5, vector_us=4 * 48, vector_cores=48), 10, "hccs:0-1", 0.5),
        (step(10, 2, vector_us=4 * 48, vector_cores=48), 10, "vector", 0.2),
    ],
)
def test_least_time_of_one_part(demand: Demand, us: float, bound: str, link: float) -> None:
    timeline = SIMULATE(built([("c", demand)], world=1))
    assert times(timeline) == {"0:c": (0, us)}
    assert timeline.spans[0].bound_by == bound
    assert busy(timeline, "hccs:0-1")[0] == (0, link)


@pytest.mark.parametrize(
    "field",
    ["load_bytes", "store_bytes", "l2_bytes", "cube_us", "vector_us", "fixed_us", "least_us"],
)
@pytest.mark.parametrize("bad", [-1.0, -1e-9, math.inf, math.nan])
def test_no_part_of_a_demand_may_be_negative_or_endless(field: str, bad: float) -> None:
    with pytest.raises(ScheduleError, match="demand of task '0:k' is negative or not finite"):
        SIMULATE(built([("k", Demand(**{field: bad}))]))
    with pytest.raises(ScheduleError, match="demand of task '0:k' is negative or not finite"):
        SIMULATE(built([("k", Demand(link_bytes=(("hccs:0-1", bad),)))]))


def test_a_ranks_curves_change_when_something_happens_there() -> None:
    """Ranks that nothing joins are simulated apart: no point of one is a point of another."""
    hbm = Demand(load_bytes=10 * HBM, tiles=10**9)
    rows = [[("a", hbm), ("b", hbm), ("e", hbm)], [("d", Demand(load_bytes=25 * HBM, tiles=10**9))]]
    timeline = SIMULATE(built(*rows))
    points = {u.resource: u.times_ns for u in timeline.usage}
    assert points["0:hbm"] == (0, 10_000, 11_000, 21_000, 22_000, 32_000)
    assert points["1:hbm"] == (0, 25_000)


def test_a_link_is_as_fast_as_the_schedule_says_it_was_planned_for() -> None:
    plan = built([("c", step(10, 8, "hccs:0-1")), ("k", step(10, 20, "hccs:2-3"))], world=1)
    slower = dataclasses.replace(plan, links=(Link("hccs", LINK / 2),))
    assert times(SIMULATE(plan)) == {"0:c": (0, 10), "0:k": (11, 31)}
    assert times(SIMULATE(slower)) == {"0:c": (0, 16), "0:k": (17, 57)}
    others = dataclasses.replace(plan, links=(Link("roce", LINK / 2),))
    assert times(SIMULATE(others)) == times(SIMULATE(plan))


def test_what_is_shared_its_capacity_and_unit() -> None:
    timeline = SIMULATE(built([("c", step(10, 5))], [("c", step(10, 5))]))
    found = {u.resource: (u.capacity, u.unit) for u in timeline.usage}
    own = {"cube": (24, "cores"), "vector": (48, "cores"), "hbm": (1e6, "bytes/us")}
    own["l2"] = (DEVICE.l2_bytes_per_us, "bytes/us")
    expected = {f"{rank}:{name}": known for rank in (0, 1) for name, known in own.items()}
    assert found == expected | {"hccs:0-1": (LINK, "bytes/us")}
