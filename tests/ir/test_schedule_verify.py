"""What the verifier says of small schedules written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from growth import growth_of_calls, growth_of_time

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import (
    Buffer,
    Communicator,
    Control,
    Demand,
    Event,
    Limits,
    Schedule,
    StateAlias,
    Task,
)
from gecompiler.ir.schedule_verify import Finding, verify_schedule

LIMITS = Limits(4, 8, 1000, 1 << 20, 8, 16)


def task(
    i: int, stream: int, order: int, reads: str = "", writes: str = "", **more: object
) -> Task:
    return Task(
        i,
        f"t{i}",
        "kernel",
        stream,
        order,
        (f"op{i}",),
        reads=tuple(reads.split()),
        writes=tuple(writes.split()),
        **more,  # type: ignore[arg-type]
    )


def pair() -> Schedule:
    """t0 writes a on stream 0; t1 on stream 1 reads it and writes b, the output."""
    return Schedule(
        model="pair",
        device="none",
        strategy="hand",
        tasks=(task(0, 0, 0, "x", "a"), task(1, 1, 0, "a", "b")),
        events=(Event(0, 1, "data", ("a",), 0),),
        buffers=(
            Buffer("x", 0, 512, "input"),
            Buffer("a", 512, 512, "activation"),
            Buffer("b", 1024, 512, "output"),
        ),
        limits=LIMITS,
        arena_bytes=1536,
    )


def at(schedule: Schedule, tensor: str, **changes: object) -> Schedule:
    buffers = tuple(
        replace(b, **changes) if b.tensor == tensor else b  # type: ignore[arg-type]
        for b in schedule.buffers
    )
    return replace(schedule, buffers=buffers)


def codes(schedule: Schedule) -> list[str]:
    return [f.code for f in verify_schedule(schedule)]


def only(schedule: Schedule) -> Finding:
    found = verify_schedule(schedule)
    assert len(found) == 1, found
    return found[0]


def test_a_safe_schedule_has_no_findings() -> None:
    assert verify_schedule(pair()) == []
    pair().verify()


def test_a_missing_event_is_told_with_both_tasks_the_tensor_and_the_fix() -> None:
    finding = only(replace(pair(), events=()))
    assert (finding.code, finding.category) == ("missing_order", "race")
    assert (finding.tasks, finding.tensor) == (("t0", "t1"), "a")
    assert finding.fix == 'add_sync_point("t0", "t1", "data_ready")'
    assert "'t1' reads 'a'" in finding.message
    assert finding.missing == (
        "Stream0 't0' (number 0) -> Stream1 't1' (number 0): when it starts, Stream1 knows of "
        "Stream0 nothing; no task there waits for it"
    )
    with pytest.raises(ScheduleError, match="missing_order: 't1' reads 'a'") as error:
        replace(pair(), events=()).verify()
    assert error.value.hint == finding.fix


def test_tasks_in_the_wrong_order_on_one_stream() -> None:
    tasks = (task(0, 0, 1, "x", "a"), task(1, 0, 0, "a", "b"))
    finding = only(replace(pair(), tasks=tasks, events=()))
    assert finding.fix == "exchange 't0' and 't1', which run the other way round"


def test_a_demanded_order_that_is_not_kept() -> None:
    tasks = (task(0, 0, 0, "x", "a"), task(1, 1, 0, "x", "b"))
    control = Control(0, 1, "user", "data_ready")
    finding = only(replace(pair(), tasks=tasks, events=(), controls=(control,)))
    assert (finding.code, finding.tasks) == ("missing_order", ("t0", "t1"))
    assert "the user wants 't1' after 't0'" in finding.message


def three() -> Schedule:
    """t2 on stream 2 writes c over a, which t1 reads; nothing orders them."""
    base = pair()
    return replace(
        base,
        tasks=(*base.tasks, task(2, 2, 0, "x", "c")),
        buffers=(*base.buffers, Buffer("c", 512, 256, "activation")),
    )


def test_memory_used_again_too_early() -> None:
    found = verify_schedule(three())
    assert [f.code for f in found] == ["race"]
    assert found[0].address == (512, 768)
    assert found[0].tensor in ("a", "c")
    ordered = replace(three(), events=(*pair().events, Event(1, 2, "buffer", ("a",), 1)))
    assert verify_schedule(ordered) == []
    after_the_writer_only = replace(three(), events=(*pair().events, Event(0, 2, "buffer", (), 0)))
    finding = only(after_the_writer_only)
    assert finding.tasks == ("t1", "t2")
    assert finding.fix == 'add_sync_point("t1", "t2", "buffer_free")'


def test_weights_and_outputs_must_last() -> None:
    assert codes(at(pair(), "b", offset=0)) == []  # over the input, which is done with
    finding = only(at(at(pair(), "x", kind="weight"), "b", offset=0))
    assert finding.code == "overwritten"
    assert finding.fix == "give 'b' another address"
    twice = replace(pair(), tasks=(task(0, 0, 0, "x", "b"), task(1, 0, 1, "b", "a")), events=())
    assert codes(at(twice, "a", offset=1024)) == ["overwritten"]


def test_two_inputs_in_one_place() -> None:
    more = replace(pair(), buffers=(*pair().buffers, Buffer("y", 256, 512, "input")))
    assert "race" in codes(more)


def test_in_place_needs_to_be_meant() -> None:
    assert codes(at(pair(), "b", offset=512)) == ["race"]
    assert codes(at(pair(), "b", offset=512, alias_of="a")) == []


def test_in_place_while_another_reads() -> None:
    base = pair()
    tasks = (*base.tasks, task(2, 0, 1, "a", "c"))
    buffers = (*base.buffers, Buffer("c", 1536, 256, "activation"))
    wide = replace(base, tasks=tasks, buffers=buffers, arena_bytes=2048)
    assert codes(wide) == []
    assert codes(at(wide, "b", offset=512, alias_of="a")) == ["race"]


def test_views_belong_to_what_they_look_at() -> None:
    base = pair()
    tasks = (task(0, 0, 0, "x", "a v"), task(1, 1, 0, "v", "b"))
    view = Buffer("v", 512, 512, "activation", "a")
    viewed = replace(base, tasks=tasks, buffers=(*base.buffers, view))
    assert codes(viewed) == []
    assert codes(at(viewed, "v", offset=768)) == ["moved_view"]
    assert codes(replace(viewed, events=())) == ["missing_order"]
    # a view that no task writes is there when its source is
    unwritten = replace(viewed, tasks=(task(0, 0, 0, "x", "a"), tasks[1]))
    assert codes(unwritten) == []
    assert codes(replace(unwritten, events=())) == ["missing_order"]


def test_state_may_only_be_overwritten_by_its_own_output() -> None:
    base = at(at(pair(), "x", kind="state"), "b", kind="state", offset=0, alias_of="x")
    state = replace(base, states=(StateAlias("x", "b", 512),))
    assert codes(state) == []
    assert codes(at(state, "a", offset=0)) == ["overwritten", "race"]  # x by a, then a by b
    stranger = replace(state, tasks=(task(0, 0, 0, "", "a"), state.tasks[1]))
    assert codes(at(at(stranger, "a", offset=0), "b", offset=1024)) == ["overwritten"]


def test_what_nobody_writes() -> None:
    silent = replace(pair(), tasks=(task(0, 0, 0, "x"), task(1, 1, 0, "a", "b")))
    finding = only(silent)
    assert (finding.code, finding.tensor) == ("unwritten", "a")
    assert codes(replace(pair(), tasks=(task(0, 0, 0, "x", "a"), task(1, 1, 0, "a")))) == [
        "unwritten"
    ]


def test_what_two_tasks_write() -> None:
    both = replace(pair(), tasks=(task(0, 0, 0, "x", "a"), task(1, 0, 1, "a", "a b")), events=())
    assert codes(both) == ["written_twice"]


def test_tasks_that_wait_in_a_circle() -> None:
    circle = replace(pair(), events=(*pair().events, Event(1, 0, "control", (), 1)))
    finding = only(circle)
    assert (finding.code, finding.category) == ("deadlock", "deadlock")
    assert "'t0' -> 't1' -> 't0'" in finding.message
    assert finding.fix.startswith("take out the wait of")
    assert codes(replace(pair(), events=(Event(0, 0, "control", (), 0),))) == ["deadlock"]


def test_a_circle_through_streams_is_named_without_bystanders() -> None:
    tasks = (task(0, 0, 0), task(1, 0, 1), task(2, 1, 0), task(3, 1, 1), task(4, 2, 0))
    events = (
        Event(3, 0, "control", (), 0),
        Event(1, 2, "control", (), 1),
        Event(1, 4, "control", (), 1),
    )
    finding = only(replace(pair(), tasks=tasks, buffers=(), events=events))
    assert set(finding.tasks) == {"t0", "t1", "t2", "t3"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"events": (Event(0, 7, "data", (), 0),)}, "an event names task 7 of 2"),
        ({"controls": (Control(9, 0, "user"),)}, "a control names task 9"),
        ({"tasks": (task(0, 0, 0, "x", "a"), task(1, 0, 0, "a", "b"))}, "both number 0"),
        ({"tasks": (task(0, 0, 0, "x", "a"), task(5, 1, 0, "a", "b"))}, "has id 5, expected 1"),
        ({"tasks": (task(0, 0, 0, "x", "a"), task(1, 1, 0, "z", "b"))}, "'z', which has no buffer"),
        ({"tasks": (task(0, -1, 0, "x", "a"), task(1, 1, 0, "a", "b"))}, "negative stream"),
    ],
)
def test_records_that_contradict_each_other(change: dict[str, object], said: str) -> None:
    found = verify_schedule(replace(pair(), **change))  # type: ignore[arg-type]
    assert {f.code for f in found} == {"malformed"}
    assert said in found[0].message
    assert found[0].tasks  # those concerned are named


def test_aliases_in_a_circle_or_of_nothing() -> None:
    circle = at(at(pair(), "a", alias_of="b"), "b", alias_of="a")
    assert codes(circle) == ["malformed"]
    assert codes(at(pair(), "a", alias_of="a")) == ["malformed"]
    assert codes(at(pair(), "a", alias_of="nothing")) == ["malformed"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_streams": 1}, "2 streams are used on rank 0, the device has 1"),
        ({"max_events": 0}, "an event of 't0' has the id 0, the device has 0"),
        (
            {"memory_bytes": 1000},
            "1536 bytes of memory are used (most by 'a' 512, 'b' 512, 'x' 512), the device has",
        ),
        ({"max_tasks_per_stream": 0}, "1 tasks are on stream 0"),
    ],
)
def test_limits_of_the_device(limits: dict[str, int], said: str) -> None:
    found = verify_schedule(replace(pair(), limits=replace(LIMITS, **limits)))
    assert said in found[0].message
    assert {f.category for f in found} == {"limit"}


def test_more_cores_than_there_are_and_addresses_outside() -> None:
    greedy = task(1, 1, 0, "a", "b", demand=Demand(cube_cores=9))
    assert "wants 9 cube cores" in only(replace(pair(), tasks=(pair().tasks[0], greedy))).message
    assert only(at(pair(), "b", offset=1100)).address == (1100, 1612)
    assert (
        only(replace(pair(), events=(replace(pair().events[0], event_id=-1),))).category == "limit"
    )


def reuse(consumer_first: bool) -> Schedule:
    """t0 records event 0 for t1; t2, behind t0, records it again for t3."""
    tasks = (task(0, 0, 0), task(1, 1, 0), task(2, 0, 1), task(3, 1, 1))
    events = [Event(0, 1, "control", (), 0), Event(2, 3, "control", (), 0)]
    if consumer_first:
        events.append(Event(1, 2, "control", (), 1))
    return replace(pair(), tasks=tasks, buffers=(), events=tuple(events))


def test_an_event_id_recorded_again_too_early() -> None:
    finding = only(reuse(consumer_first=False))
    assert (finding.code, finding.tasks) == ("event_reuse", ("t1", "t2"))
    assert codes(reuse(consumer_first=True)) == []


def ranks(second_order: tuple[int, int]) -> Schedule:
    tasks = []
    for rank, order in ((0, (0, 1)), (1, second_order)):
        for k, place in enumerate(order):
            i = len(tasks)
            tasks.append(
                Task(i, f"{rank}:reduce{k}", "collective", 0, place, rank=rank, communicator="all")
            )
    return replace(
        pair(),
        tasks=tuple(tasks),
        events=(),
        buffers=(),
        communicators=(Communicator("all", (0, 1)),),
    )


def test_collectives_in_one_order_on_all_ranks() -> None:
    assert codes(ranks((0, 1))) == []
    found = verify_schedule(ranks((1, 0)))
    assert [f.code for f in found] == ["deadlock"]
    assert {n.split(":")[1] for n in found[0].tasks} == {"reduce0", "reduce1"}


def test_collectives_that_one_rank_leaves_out_or_leaves_unordered() -> None:
    short = ranks((0, 1))
    found = verify_schedule(replace(short, tasks=short.tasks[:3]))
    assert [f.code for f in found] == ["collective_missing"]
    assert "rank 1 never does" in found[0].message
    loose = replace(short, tasks=(*short.tasks[:3], replace(short.tasks[3], stream=1, order=0)))
    finding = only(loose)
    assert finding.fix == 'add_sync_point("1:reduce0", "1:reduce1", "control")'
    assert codes(replace(short, communicators=())) == ["collective_order"]


def test_several_ranks_that_are_left_out_are_told_in_the_plural() -> None:
    wide = replace(ranks((0, 1)), communicators=(Communicator("all", (0, 1, 2, 3)),))
    found = verify_schedule(wide)
    assert [f.code for f in found] == ["collective_missing"]
    assert "ranks 0, 1 take part" in found[0].message
    assert "ranks 2, 3 never do:" in found[0].message


def long(count: int) -> Schedule:
    """Four streams that hand on their work every fourth task, memory used again all along."""
    tasks, events, buffers = [], [], []
    for i in range(count):
        stream, order = i % 4, i // 4
        reads = f"v{i - 4}" if i >= 4 else ""
        if i % 16 == 0 and i >= 16:
            events.append(Event(i - 1, i, "data", (), (i // 16) % 8))
            reads += f" v{i - 1}"
        tasks.append(task(i, stream, order, reads, f"v{i}"))
        buffers.append(Buffer(f"v{i}", (stream * 64 + order % 64) * 512, 512, "activation"))
    return replace(
        pair(),
        tasks=tuple(tasks),
        events=tuple(events),
        buffers=tuple(buffers),
        arena_bytes=256 * 512,
        limits=replace(LIMITS, max_tasks_per_stream=count),
    )


def verified(count: int) -> Callable[[], object]:
    schedule = long(count)

    def verify() -> None:
        found = verify_schedule(schedule)
        assert not [f for f in found if f.code not in ("race", "event_reuse")]

    return verify


def test_work_grows_with_the_tasks_and_not_with_their_square() -> None:
    assert growth_of_calls(verified, 500, 4_000) < 8 * 1.5


@pytest.mark.slow
def test_time_grows_with_the_tasks_and_not_with_their_square() -> None:
    assert growth_of_time(verified, 4_000, 40_000, 3) < 10 * 3


def test_a_wait_that_is_turned_round_is_to_be_taken_out() -> None:
    finding = only(replace(pair(), events=(Event(1, 0, "data", ("a",), 3),)))
    assert finding.code == "missing_order"
    assert finding.fix == (
        "take out the wait of 't0' for 't1' (event 3), and "
        'add_sync_point("t0", "t1", "data_ready")'
    )


@pytest.mark.parametrize(("whole", "view"), [("activation", "output"), ("output", "activation")])
def test_what_is_handed_out_by_a_view_or_only_looked_at_by_one_must_last(
    whole: str, view: str
) -> None:
    tasks = (task(0, 0, 0, "x", "a"), task(1, 0, 1, "v", "b"), task(2, 0, 2, "b", "c"))
    buffers = (*pair().buffers, Buffer("v", 512, 512, view, "a"), Buffer("c", 512, 512, "output"))  # type: ignore[arg-type]
    made = replace(pair(), tasks=tasks, events=(), buffers=buffers)
    finding = only(at(at(made, "a", kind=whole), "b", kind="activation"))
    assert (finding.code, finding.tensor, finding.tasks) == ("overwritten", "a", ("t2",))
    passing = at(at(made, "a", kind="activation"), "v", kind="activation")
    assert codes(at(passing, "b", kind="activation")) == []


def test_communicators_that_say_a_thing_twice() -> None:
    one = Communicator("tp:0", (0, 1))
    schedule = replace(
        Schedule("m", "d", "hand", (), (), (), Limits(1, 1, 1, 1, 1, 1)),
        communicators=(one, one, Communicator("dp:0", (1, 1))),
    )
    assert [f.message for f in schedule.findings() if f.code == "malformed"] == [
        "communicator 'tp:0' is declared twice",
        "communicator 'dp:0' has a rank twice",
    ]


@pytest.mark.parametrize(("producer", "name"), [(-1, "task -1"), (1, "'t1'"), (2, "task 2")])
def test_the_id_of_an_event_of_a_task_that_is_not_there(producer: int, name: str) -> None:
    found = verify_schedule(replace(pair(), events=(Event(producer, 0, "data", (), -1),)))
    assert any(f"an event of {name} has the id -1" in f.message for f in found)
