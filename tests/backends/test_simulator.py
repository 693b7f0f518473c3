"""The simulator: streams, events, contention, waits, ranks, by example and by property."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from plain_device import DEVICE

from gecompiler.backends.simulator import Simulator
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Communicator, Demand, Event, Schedule, Task
from gecompiler.ir.timeline import Timeline

SIMULATE = Simulator(DEVICE)
MANY = 10**9


def memory(us: float) -> Demand:
    """Keeps the whole of HBM busy for that long."""
    return Demand(load_bytes=us * 1e6, tiles=MANY)


def cube(us: float, hbm_share: float = 0.0) -> Demand:
    """Keeps all cube cores busy for that long, with that share of HBM."""
    return Demand(load_bytes=us * 1e6 * hbm_share, cube_us=us * 24, cube_cores=24, tiles=MANY)


def link(us: float, name: str = "hccs:0-1", fixed: float = 0.0) -> Demand:
    return Demand(link_bytes=((name, us * 1e5),), fixed_us=fixed)


def schedule(
    streams: dict[tuple[int, int], list[tuple[str, Demand]]],
    waits: list[tuple[str, str]] | None = None,
    **more: Any,
) -> Schedule:
    """Tasks by (rank, stream); ``waits`` are (producer, consumer) by name."""
    tasks: list[Task] = []
    for (rank, stream), queue in streams.items():
        for order, (name, demand) in enumerate(queue):
            tasks.append(Task(len(tasks), name, "kernel", stream, order, demand=demand, rank=rank))
    number = {t.name: t.id for t in tasks}
    events = [Event(number[a], number[b], "data") for a, b in waits or []]
    return Schedule("m", "d", "s", tuple(tasks), tuple(events), (), DEVICE.limits, **more)


def times(timeline: Timeline) -> dict[str, tuple[float, float]]:
    return {s.name: (s.start_ns / 1000, s.end_ns / 1000) for s in timeline.spans}


def test_one_stream_is_tasks_and_gaps() -> None:
    found = times(
        SIMULATE(schedule({(0, 0): [("a", memory(10)), ("b", cube(5)), ("c", Demand())]}))
    )
    assert found == {"a": (0, 10), "b": (11, 16), "c": (17, 17)}


def test_empty_schedule() -> None:
    timeline = SIMULATE(schedule({}))
    assert timeline.spans == ()
    assert timeline.makespan_ns == 0


def test_two_memory_bound_tasks_gain_nothing() -> None:
    found = times(SIMULATE(schedule({(0, 0): [("a", memory(10))], (0, 1): [("b", memory(10))]})))
    assert found == {"a": (0, 20), "b": (0, 20)}


def test_memory_beside_compute_gains_all() -> None:
    found = times(SIMULATE(schedule({(0, 0): [("a", memory(10))], (0, 1): [("b", cube(10))]})))
    assert found == {"a": (0, 10), "b": (0, 10)}


def test_a_modest_task_keeps_its_pace_beside_a_greedy_one() -> None:
    timeline = SIMULATE(
        schedule({(0, 0): [("greedy", memory(15))], (0, 1): [("modest", cube(10, 0.25))]})
    )
    # 10 us at three quarters of HBM, the other half of the work at all of it
    found = times(timeline)
    assert found["greedy"] == pytest.approx((0, 17.5), abs=0.0011)
    assert found["modest"] == pytest.approx((0, 10), abs=0.0011)
    assert [s.bound_by for s in timeline.spans] == ["hbm", "cube"]


def test_rates_change_when_company_comes_and_goes() -> None:
    late = dataclasses.replace(memory(10), fixed_us=4)
    found = times(SIMULATE(schedule({(0, 0): [("a", memory(10))], (0, 1): [("b", late)]})))
    # a has 4 us alone, shares for 12 more; b then has 4 us of work left
    assert found == {"a": (0, 16), "b": (0, 20)}


def test_event_costs_and_attribution() -> None:
    timeline = SIMULATE(
        schedule(
            {
                (0, 0): [("a", cube(10)), ("x", cube(1))],
                (0, 1): [("b", memory(2)), ("c", memory(3))],
            },
            [("a", "c")],
        )
    )
    found = times(timeline)
    assert found["c"] == (10.75, 13.75)  # record 0.5 and wait 0.25 after a
    assert found["x"] == (11.5, 12.5)  # the record holds a's stream up as well
    span = timeline.spans[3]
    assert (span.waited_for, span.wait_cause) == (0, "event")
    assert span.wait_ns == 10750 - 3000
    assert timeline.spans[1].wait_cause == "stream"
    assert timeline.spans[1].waited_for == 0
    assert (timeline.spans[0].wait_cause, timeline.spans[0].waited_for) == ("start", None)
    assert timeline.events == ((0, 3),)


def test_a_wait_that_is_over_still_costs_its_passing() -> None:
    found = times(
        SIMULATE(
            schedule(
                {(0, 0): [("a", cube(1))], (0, 1): [("b", memory(20)), ("c", memory(3))]},
                [("a", "c")],
            )
        )
    )
    assert found["c"] == (21.25, 24.25)


def test_a_blocked_head_blocks_all_behind_it() -> None:
    found = times(
        SIMULATE(
            schedule(
                {(0, 0): [("a", cube(10))], (0, 1): [("b", memory(1)), ("c", memory(1))]},
                [("a", "b")],
            )
        )
    )
    assert found["b"][0] == 10.75
    assert found["c"][0] == 12.75


@pytest.mark.parametrize(
    "waits", [[("a", "d"), ("c", "b")], [("b", "a")], [("a", "a")], [("d", "a"), ("b", "c")]]
)
def test_deadlock_names_the_tasks(waits: list[tuple[str, str]]) -> None:
    streams = {
        (0, 0): [("b", cube(1)), ("a", cube(1))],
        (0, 1): [("d", cube(1)), ("c", cube(1))],
    }
    if waits == [("b", "a")]:
        streams = {(0, 0): [("a", cube(1)), ("b", cube(1))]}
    if waits == [("d", "a"), ("b", "c")]:
        streams = {
            (0, 0): [("a", cube(1)), ("b", cube(1))],
            (0, 1): [("c", cube(1)), ("d", cube(1))],
        }
    with pytest.raises(ScheduleError, match="deadlock") as caught:
        SIMULATE(schedule(streams, waits))
    assert "waits for" in str(caught.value)
    assert "'a'" in str(caught.value)


def test_events_ids_and_demands_that_make_no_sense() -> None:
    good = schedule({(0, 0): [("a", cube(1))]})
    for a, b in ((0, 7), (1, 0), (-1, 0)):
        with pytest.raises(ScheduleError, match="there are 1 tasks"):
            SIMULATE(dataclasses.replace(good, events=(Event(a, b, "data"),)))
    with pytest.raises(ScheduleError, match=r"^m: task 'a' has id 3, expected 0"):
        SIMULATE(dataclasses.replace(good, tasks=(dataclasses.replace(good.tasks[0], id=3),)))
    for bad in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ScheduleError, match="negative or not finite"):
            SIMULATE(schedule({(0, 0): [("a", Demand(load_bytes=bad))]}))
    with pytest.raises(ScheduleError, match="no link 'warp"):
        SIMULATE(schedule({(0, 0): [("a", link(1, "warp:0-1"))]}))


def test_ranks_have_their_own_memory_and_share_links() -> None:
    timeline = SIMULATE(
        schedule(
            {
                (0, 0): [("m0", memory(10)), ("l0", link(10))],
                (1, 0): [("m1", memory(10)), ("l1", link(10))],
                (2, 0): [("l2", link(10, "hccs:2-3"))],
            }
        )
    )
    found = times(timeline)
    assert found["m0"] == found["m1"] == (0, 10)
    assert found["l0"] == found["l1"] == (11, 31)
    assert found["l2"] == (0, 10)
    names = [u.resource for u in timeline.usage]
    assert names[:4] == ["0:cube", "0:vector", "0:hbm", "0:l2"]
    assert names[-2:] == ["hccs:0-1", "hccs:2-3"]
    assert [s.bound_by for s in timeline.spans] == [
        "hbm",
        "hccs:0-1",
        "hbm",
        "hccs:0-1",
        "hccs:2-3",
    ]


def collective(parts: list[list[float]]) -> Schedule:
    """Per rank: (time of a task before, time on its own link) for one collective each."""
    tasks: list[Task] = []
    for rank, (before, own) in enumerate(parts):
        tasks.append(Task(len(tasks), f"k{rank}", "kernel", 0, 0, demand=cube(before), rank=rank))
        tasks.append(
            Task(
                len(tasks),
                f"c{rank}",
                "collective",
                0,
                1,
                demand=link(own, f"hccs:{rank}", fixed=2.0),
                rank=rank,
                communicator="world",
            )
        )
    world = Communicator("world", tuple(range(len(parts))))
    return Schedule("m", "d", "s", tuple(tasks), (), (), DEVICE.limits, communicators=(world,))


def test_a_collective_goes_on_when_all_have_come() -> None:
    timeline = SIMULATE(collective([[1, 5], [10, 5], [3, 5]]))
    found = times(timeline)
    assert found["c0"] == (2, 18)
    assert found["c1"] == (11, 18)
    assert found["c2"] == (4, 18)
    assert [timeline.spans[i].bound_by for i in (1, 3)] == ["peers", "hccs:1"]


def test_a_missing_partner_is_an_error_and_not_a_hang() -> None:
    good = collective([[1, 5], [1, 5]])
    lonely = dataclasses.replace(good, tasks=good.tasks[:3])
    with pytest.raises(ScheduleError, match="different numbers of collectives"):
        SIMULATE(lonely)


def test_collectives_in_crossed_order_deadlock() -> None:
    tasks = [
        Task(2 * rank + i, f"{comm}{rank}", "collective", 0, i, rank=rank, communicator=comm)
        for rank, order in enumerate((("x", "y"), ("y", "x")))
        for i, comm in enumerate(order)
    ]
    both = (Communicator("x", (0, 1)), Communicator("y", (0, 1)))
    crossed = Schedule("m", "d", "s", tuple(tasks), (), (), DEVICE.limits, communicators=both)
    with pytest.raises(ScheduleError, match="deadlock"):
        SIMULATE(crossed)


def test_the_host_can_be_the_bottleneck() -> None:
    device = dataclasses.replace(DEVICE, host_launch_us=7.0, host_event_us=2.0)
    plan = schedule(
        {(0, 0): [("a", cube(1)), ("b", cube(1))], (0, 1): [("c", cube(1))]}, [("a", "c")]
    )
    timeline = Simulator(device, launch="host")(plan)
    # a at 7; its record keeps the host until 9; b at 16; c after its wait at 25
    assert {n: t[0] for n, t in times(timeline).items()} == {"a": 7, "b": 16, "c": 25}
    assert {s.wait_cause for s in timeline.spans} == {"resource"}
    assert Simulator(dataclasses.replace(device, launch_mode="host"))(plan) == timeline
    with pytest.raises(ScheduleError, match="neither"):
        Simulator(DEVICE, launch="magic")


def test_every_rank_has_a_host_thread_of_its_own() -> None:
    device = dataclasses.replace(DEVICE, host_launch_us=7.0)
    plan = schedule({(rank, 0): [("a", cube(1)), ("b", cube(1))] for rank in range(3)})
    timeline = Simulator(device, launch="host")(plan)
    assert [s.start_ns for s in sorted(timeline.spans, key=lambda s: s.task)] == [7000, 14000] * 3


def test_what_binds_a_task_may_change_while_its_pace_stays() -> None:
    l2 = DEVICE.l2_bytes_per_us
    both = Demand(load_bytes=100e6, l2_bytes=100 * l2)
    then = Demand(l2_bytes=1000 * l2, fixed_us=20.0)
    plan = schedule({(0, 0): [("a", both)], (0, 1): [("b", memory(10))], (0, 2): [("c", then)]})
    timeline = SIMULATE(plan)  # a goes at half its pace: 20 us beside b, then beside c
    assert times(timeline)["a"] == pytest.approx((0, 200), abs=0.0011)
    assert [s.bound_by for s in timeline.spans] == ["l2", "hbm", "l2"]


def test_two_events_between_two_tasks_are_one_wait() -> None:
    streams = {(0, 0): [("a", cube(10))], (0, 1): [("b", cube(1))]}
    once, twice = (SIMULATE(schedule(streams, [("a", "b")] * n)) for n in (1, 2))
    assert times(once) == times(twice) == {"a": (0, 10), "b": (10.75, 11.75)}


def test_a_task_issued_just_in_time_waits_for_its_stream() -> None:
    device = dataclasses.replace(DEVICE, host_launch_us=10.0, host_event_us=0.0)
    plan = schedule({(0, 0): [("a", cube(9)), ("b", cube(8)), ("c", cube(1))]})
    timeline = Simulator(device, launch="host")(plan)
    assert [t[0] for t in times(timeline).values()] == [10, 20, 30]
    assert [s.wait_cause for s in timeline.spans] == ["resource", "stream", "resource"]
