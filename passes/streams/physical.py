"""Logical streams cut into physical ones, which hold a limited number of tasks.

CANN GE, ``stream_allocator.cc``, SplitStreams (behaviour only). Capacities are those of its
tests' runtime: 1024 tasks a stream, 8192 for one of the few huge ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from gecompiler.ir.schedule import PhysicalStream, Schedule

CAPACITY = 1024
RESERVE = 27
"""Tasks kept free on each stream: 7 profiling points and 20 more."""


WAIT_ENTRIES = 2
"""A wait and its reset."""


@dataclass(frozen=True, slots=True)
class Place:
    """A unit's tasks on its main stream, and on the attached stream beside it, if any."""

    stream: int
    tasks: int
    attached: int | None = None
    attached_tasks: int = 0
    pinned: bool = False
    """Never the first on a new stream: it has subgraphs or is a branch target."""


@dataclass
class PhysicalStreams:
    """The result: physical streams by unit, what logical ones they are of, and the events.

    ``events`` are (last unit before, first unit after) of each cut and (last unit of an
    attached stream, last unit of all). ``huge`` are streams that need the runtime's long kind.
    """

    main: list[int] = field(default_factory=list)
    attached: list[int | None] = field(default_factory=list)
    logical: dict[int, int] = field(default_factory=dict)
    events: list[tuple[int, int]] = field(default_factory=list)
    huge: list[int] = field(default_factory=list)


def physical_streams(schedule: Schedule) -> tuple[PhysicalStream, ...]:
    """How the device's queues hold a schedule's streams.

    A task takes an entry, its record another, and each wait two (it is reset after). The first
    parts keep their streams' numbers where these are dense; parts cut off come after.
    """
    records = {(e.producer, e.event_id) for e in schedule.events}
    recorded = Counter(producer for producer, _ in records)
    waits = Counter(e.consumer for e in schedule.events)
    found: list[PhysicalStream] = []
    cut_off: list[PhysicalStream] = []
    for number, ((rank, stream), queue) in enumerate(schedule.streams.items()):
        places = [Place(0, 1 + recorded[t.id] + WAIT_ENTRIES * waits[t.id]) for t in queue]
        split = split_streams(places, capacity=schedule.limits.queue_entries)
        for part, run in groupby(enumerate(split.main), key=lambda x: x[1]):
            taken = [i for i, _ in run]
            entries = sum(places[i].tasks for i in taken) + (1 if part else 0)
            made = PhysicalStream(number, stream, taken[0], taken[-1], entries, rank)
            (cut_off if part else found).append(made)
    tail = (replace(part, id=len(found) + i) for i, part in enumerate(cut_off))
    return (*found, *tail)


def split_streams(
    places: Sequence[Place],
    *,
    capacity: int = CAPACITY,
    reserve: int = RESERVE,
    single_stream: bool = False,
) -> PhysicalStreams:
    """Cuts each stream before the unit that would fill it; new streams are numbered as they come.

    ``places`` are in execution order. With ``single_stream`` a stream that is too long becomes
    a huge one instead.
    """
    streams = sorted({s for p in places for s in (p.stream, p.attached) if s is not None})
    found = PhysicalStreams(logical={s: s for s in streams})
    if single_stream:
        return _one_stream(places, found, capacity - reserve)
    cutter = _Cutter(found, capacity - reserve, max(streams, default=-1) + 1)
    for unit, place in enumerate(places):
        found.main.append(cutter.put(unit, place.stream, place.tasks, place.pinned))
        if place.attached is None:
            found.attached.append(None)
        else:
            beside = cutter.put(unit, place.attached, place.attached_tasks, place.pinned)
            found.attached.append(beside)
    found.events += _joins(places, found)
    return found


def _one_stream(places: Sequence[Place], found: PhysicalStreams, room: int) -> PhysicalStreams:
    found.main = [p.stream for p in places]
    found.attached = [p.attached for p in places]
    total: dict[int, int] = {}
    for place in places:
        total[place.stream] = total.get(place.stream, 0) + max(1, place.tasks)
    found.huge = [s for s, tasks in sorted(total.items()) if tasks > room]
    return found


def _joins(places: Sequence[Place], found: PhysicalStreams) -> list[tuple[int, int]]:
    """The last unit of each attached stream is waited for at the end."""
    last: dict[int, int] = {}
    for unit, place in enumerate(places):
        if place.attached is not None:
            last[place.attached] = unit
    end = len(places) - 1
    return [(unit, end) for unit in last.values() if unit != end]


class _Cutter:
    def __init__(self, found: PhysicalStreams, room: int, first_free: int) -> None:
        self.found = found
        self.room = room
        self.free = first_free
        self.now: dict[int, int] = {}
        self.count: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def put(self, unit: int, logical: int, tasks: int, pinned: bool) -> int:
        """The physical stream of the unit."""
        tasks = max(1, tasks)
        stream = self.now.setdefault(logical, logical)
        count = self.count.get(stream, 0)
        if count and count + tasks > self.room and not pinned:
            before = self.last[logical]
            stream = self.now[logical] = self.free
            self.free += 1
            self.found.logical[stream] = logical
            self.found.events.append((before, unit))
            count = 1  # the wait for the part before
        self.count[stream] = count + tasks
        self.last[logical] = unit
        return stream
