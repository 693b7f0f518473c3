"""Schedules by what is wrong with them; what is found lies in schedule_findings.yaml."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.schedule import (
    Buffer,
    BufferKind,
    Communicator,
    Control,
    Demand,
    Event,
    Limits,
    Schedule,
    Task,
)

LIMITS = Limits(4, 8, 1000, 1 << 20, 8, 16)


def task(i: int, stream: int, order: int, reads: str = "", writes: str = "", rank: int = 0) -> Task:
    own = tuple(reads.split()), tuple(writes.split())
    return Task(i, f"t{i}", "kernel", stream, order, reads=own[0], writes=own[1], rank=rank)


def buffer(name: str, place: int, kind: BufferKind = "activation", **more: object) -> Buffer:
    return Buffer(name, place * 512, 512, kind, **more)  # type: ignore[arg-type]


def schedule(tasks: list[Task], buffers: list[Buffer] = (), **more: object) -> Schedule:  # type: ignore[assignment]
    base = Schedule("m", "d", "hand", tuple(tasks), (), tuple(buffers), LIMITS, arena_bytes=8192)
    return replace(base, **more)  # type: ignore[arg-type]


def waits(*pairs: tuple[int, int]) -> tuple[Event, ...]:
    return tuple(Event(a, b, "control", (), i) for i, (a, b) in enumerate(pairs))


def part(i: int, rank: int, name: str, order: int = 0, **more: object) -> Task:
    """A collective's part, or a point-to-point one, in communicator "all"."""
    own = {"communicator": "all", "op_type": "AllReduce", "rank": rank, **more}
    return Task(i, f"{rank}:{name}", "collective", 0, order, **own)  # type: ignore[arg-type]


def all_of(*parts: Task, ranks: tuple[int, ...] = (0, 1), **more: object) -> Schedule:
    return schedule(list(parts), communicators=(Communicator("all", ranks),), **more)


READERS = [
    task(0, 0, 0, "x", "a"),
    task(1, 0, 1, "a", "b"),
    task(2, 1, 0, "c", "c2"),
    task(3, 1, 1, "a", "d"),
]
PLACES = [
    buffer("x", 0, "input"),
    buffer("c", 1, "input"),
    buffer("a", 2),
    buffer("b", 3, "output"),
    buffer("d", 4, "output"),
    buffer("c2", 5, "output"),
]

CASES = {
    "nothing known": schedule(READERS, PLACES),
    "known up to": schedule(
        [
            task(0, 0, 0, "x", "a"),
            task(1, 0, 1, "x", "b"),
            task(2, 0, 2, "x", "e"),
            task(3, 1, 0, "b", "c"),
            task(4, 1, 1, "e", "d"),
            task(5, 1, 2),
        ],
        [
            buffer("x", 0, "input"),
            buffer("a", 1),
            buffer("b", 2),
            buffer("e", 3),
            buffer("c", 4, "output"),
            buffer("d", 5, "output"),
        ],
        events=waits((0, 3), (2, 5)),
    ),
    "other way round one stream": schedule(
        [task(0, 0, 1, "x", "a"), task(1, 0, 0, "a", "b")],
        [buffer("x", 0, "input"), buffer("a", 1), buffer("b", 2, "output")],
    ),
    "other way two streams via": schedule(
        [task(0, 0, 0, "x", "a"), task(1, 1, 0, "a", "b"), task(2, 2, 0)],
        [buffer("x", 0, "input"), buffer("a", 1), buffer("b", 2, "output")],
        events=waits((1, 2), (2, 0)),
    ),
    "control graph": schedule([task(0, 0, 0), task(1, 1, 0)], controls=(Control(0, 1, "graph"),)),
    "control user": schedule(
        [task(0, 0, 0), task(1, 1, 0)], controls=(Control(0, 1, "user"),), events=waits((1, 0))
    ),
    "race read": schedule(
        [task(0, 0, 0, "x", "a"), task(1, 0, 1, "a", "b"), task(2, 1, 0, "x", "c")],
        [
            buffer("x", 0, "input"),
            buffer("a", 1),
            buffer("b", 2, "output"),
            Buffer("c", 768, 512, "activation"),
        ],
    ),
    "race late": schedule(
        [
            task(0, 0, 1, "x", "a"),
            task(1, 0, 2, "a", "b"),
            task(2, 1, 0, "x", "c"),
            task(3, 1, 1, "c", "d"),
        ],
        [
            buffer("x", 0, "input"),
            buffer("a", 1),
            buffer("b", 2, "output"),
            Buffer("c", 256, 512, "activation"),
            buffer("d", 4, "output"),
        ],
    ),
    "own input": schedule(
        [task(0, 0, 0, "x", "a"), task(1, 0, 1, "a", "b")],
        [buffer("x", 0, "input"), buffer("a", 1), buffer("b", 1, "output")],
    ),
    "from start": schedule(
        [task(0, 0, 0, "x y", "a")],
        [buffer("x", 0, "input"), Buffer("y", 256, 512, "weight"), buffer("a", 4, "output")],
    ),
    "outlive": schedule(
        [task(0, 0, 0, "w", "a"), task(1, 0, 1, "a", "b")],
        [buffer("w", 0, "weight"), buffer("a", 1), Buffer("b", 256, 512, "output")],
    ),
    "arena": schedule(
        [task(0, 0, 0, "x", "a")], [buffer("x", 0, "input"), Buffer("a", 8000, 512, "output")]
    ),
    "negative": schedule(
        [task(0, 0, 0, "x", "a")], [buffer("x", 0, "input"), Buffer("a", -512, 512, "output")]
    ),
    "moved": schedule(
        [task(0, 0, 0, "x", "a"), task(1, 0, 1, "v", "b")],
        [
            buffer("x", 0, "input"),
            buffer("a", 1),
            Buffer("v", 768, 512, "activation", "a"),
            buffer("b", 4, "output"),
        ],
    ),
    "twice": schedule(
        [task(0, 0, 0, "x", "a"), task(1, 0, 1, "x", "a")],
        [buffer("x", 0, "input"), buffer("a", 1, "output")],
    ),
    "unwritten": schedule(
        [task(0, 0, 0, "a", "b"), task(1, 0, 1, "a", "c")],
        [
            buffer("a", 1),
            buffer("b", 2, "output"),
            buffer("c", 3, "output"),
            buffer("o", 4, "output"),
        ],
    ),
    "event reuse": schedule(
        [task(0, 0, 0), task(1, 1, 0), task(2, 0, 1), task(3, 1, 1)],
        events=(Event(0, 1, "data", ("z",), 5), Event(2, 3, "control", (), 5)),
    ),
    "event reuse ordered back": schedule(
        [task(0, 0, 0), task(1, 1, 0), task(2, 2, 0), task(3, 3, 0)],
        events=(
            Event(0, 1, "control", (), 5),
            Event(0, 2, "control", (), 5),
            Event(2, 3, "control", (), 5),
            Event(2, 1, "control", (), 6),
        ),
    ),
    "notify shared": schedule(
        [task(0, 0, 0), task(1, 1, 0), task(2, 2, 0)],
        events=(Event(0, 1, "control", (), 1), Event(0, 2, "control", (), 1)),
        sync_primitive="notify",
    ),
    "deadlock rotated": schedule(
        [task(0, 0, 0), task(1, 1, 0), task(2, 2, 0), task(3, 2, 1)], events=waits((2, 1), (1, 2))
    ),
    "deadlock long": schedule(
        [task(i, i, 0) for i in range(4)], events=waits((0, 3), (3, 1), (1, 2), (2, 0))
    ),
    "deadlock collectives": all_of(
        part(0, 0, "a", 0), part(1, 0, "b", 1), part(2, 1, "b", 0), part(3, 1, "a", 1)
    ),
    "missing one": all_of(
        part(0, 0, "a"),
    ),
    "missing many": all_of(
        part(0, 0, "a"),
        part(1, 0, "b", 1),
        part(2, 1, "a"),
        part(3, 1, "b", 1),
        part(4, 2, "c"),
        ranks=tuple(range(9)),
    ),
    "send alone": all_of(part(0, 0, "s", op_type="Send", signature="0>1")),
    "recv alone": all_of(part(0, 1, "s", op_type="Recv", signature="0>1")),
    "no type": all_of(part(0, 0, "a", op_type="")),
    "mismatch type": all_of(part(0, 0, "a"), part(1, 1, "a", op_type="AllGather")),
    "mismatch no type": all_of(part(0, 0, "a", op_type=""), part(1, 1, "a")),
    "mismatch sig": all_of(part(0, 0, "a", signature="sum 4"), part(1, 1, "a")),
    "mismatch three": all_of(
        part(0, 0, "a"), part(1, 1, "a"), part(2, 2, "a", op_type="AllGather"), ranks=(0, 1, 2)
    ),
    "both send": all_of(
        part(0, 0, "s", op_type="Send", signature="q"),
        part(1, 1, "s", op_type="Send", signature="q"),
    ),
    "send of three": all_of(
        part(0, 0, "s", op_type="Send", signature="q"),
        part(1, 1, "s", op_type="Recv", signature="q"),
        part(2, 2, "s", op_type="Recv", signature="q"),
        ranks=(0, 1, 2),
    ),
    "send recv": all_of(
        part(0, 0, "s", op_type="Send", signature="q"),
        part(1, 1, "r", op_type="Recv", signature="q"),
    ),
    "stranger": all_of(part(0, 0, "a"), part(1, 1, "a"), part(2, 2, "a")),
    "undeclared": replace(all_of(part(0, 0, "a"), part(1, 1, "a")), communicators=()),
    "unordered": all_of(
        part(0, 0, "a"), replace(part(1, 0, "b"), stream=1), part(2, 1, "a"), part(3, 1, "b", 1)
    ),
    "cores": schedule(
        [
            Task(0, "r0", "collective", 0, 0, demand=Demand(vector_cores=10)),
            Task(1, "r1", "collective", 1, 0, demand=Demand(vector_cores=7)),
            Task(2, "r2", "collective", 2, 0, demand=Demand(vector_cores=16)),
        ],
        events=waits((0, 2), (1, 2)),
    ),
    "limits": schedule(
        [
            task(0, 0, 0),
            task(1, 0, 1),
            task(2, 1, 0),
            replace(task(3, 2, 0), demand=Demand(cube_cores=9, vector_cores=17)),
        ],
        [
            buffer("big", 0, "input"),
            buffer("view", 0, "input", alias_of="big"),
            Buffer("small", 512, 5, "input"),
            Buffer("wide", 1024, 900, "input"),
            Buffer("least", 4096, 1, "input"),
        ],
        limits=replace(LIMITS, max_streams=2, max_tasks_per_stream=1, memory_bytes=100),
    ),
    "notify ids": schedule(
        [task(0, 0, 0), task(1, 1, 0)],
        events=(Event(0, 1, "control", (), 3),),
        sync_primitive="notify",
        limits=replace(LIMITS, max_notifies=3),
    ),
    "event ids": schedule(
        [task(0, 0, 0), task(1, 1, 0)], events=(Event(0, 1, "control", (), 8),), limits=LIMITS
    ),
    "malformed": schedule(
        [
            task(0, 0, 0, "q"),
            task(1, 0, 0),
            task(5, 0, 2, "y"),
            task(3, -1, 0),
            task(4, 1, 0, "x", rank=1),
        ],
        [
            buffer("x", 0, "input"),
            Buffer("y", 0, -1, "input"),
            buffer("y", 3, "input"),
            buffer("p", 1, alias_of="none"),
        ],
        events=(Event(0, 9, "data"), Event(0, 4, "data")),
        controls=(Control(-1, 0, "user"), Control(4, 0, "user")),
    ),
    "alias circle": schedule(
        [task(0, 0, 0)],
        [
            buffer("a", 0, alias_of="b"),
            buffer("b", 0, alias_of="a"),
            buffer("c", 0, alias_of="a"),
            buffer("e", 0, rank=1, alias_of="a"),
        ],
    ),
    "at the limits": schedule(
        [
            replace(task(i, s, o), demand=Demand(cube_cores=8, vector_cores=16))
            for i, (s, o) in enumerate(((0, 0), (0, 1), (1, 0)))
        ],
        [Buffer("x", 0, 8192, "input"), Buffer("nothing", 9000, 0, "input")],
        events=(Event(0, 2, "control", (), 7),),
        limits=replace(LIMITS, max_streams=2, max_tasks_per_stream=2, memory_bytes=8192),
    ),
}
