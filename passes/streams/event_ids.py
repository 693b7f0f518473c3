"""Hardware ids for events, used again as soon as that is safe.

All waits on one record share its id. A record may take an id over once every wait on the id's
last record is done: each waiting task is ordered before, or is, the recording task. Notifies,
the graph engine's alternative, are used up by their one wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Event, Limits, SyncPrimitive
from gecompiler.passes.streams.path_cover import minimum_path_cover
from gecompiler.passes.streams.sync import Positions


@dataclass(frozen=True)
class EventIds:
    """The events with their ids, and how many ids there are."""

    events: tuple[Event, ...]
    count: int


def allocate_event_ids(
    events: Sequence[Event],
    clock: Sequence[tuple[int, ...]],
    where: Positions,
    primitive: SyncPrimitive = "event",
) -> EventIds:
    """Gives every event an id, 0 upwards, by a greedy pass over the records in sequence.

    Waits on one record share its event; a notify wakes one wait, so that each has its own.
    """
    records = _records(events, where, primitive)
    pool = _Pool(where)
    ids: list[int] = []
    for producer, waits in records:
        ids.append(pool.take(_done(producer, clock, where)))
        pool.release(ids[-1], waits)
    return _numbered(events, records, ids, pool.count)


def fewest_event_ids(
    events: Sequence[Event],
    clock: Sequence[tuple[int, ...]],
    where: Positions,
    primitive: SyncPrimitive = "event",
) -> EventIds:
    """As `allocate_event_ids`, with the fewest ids there can be; quadratic in the records.

    "All waits on a are over before b" orders records partially, so that an id serves a chain:
    the fewest chains are the records less a maximum matching (Dilworth; Fulkerson).
    """
    records = _records(events, where, primitive)
    done = [_done(producer, clock, where) for producer, _ in records]
    needs = [_needs(waits, where) for _, waits in records]
    later: list[list[int]] = [
        [
            j
            for j in range(i + 1, len(records))
            if all(count <= done[j][lane] for lane, count in needs[i].items())
        ]
        for i in range(len(records))
    ]
    chains = minimum_path_cover(later)
    ids = [0] * len(records)
    for number, chain in enumerate(chains):
        for record in chain:
            ids[record] = number
    return _numbered(events, records, ids, len(chains))


Record = tuple[int, tuple[int, ...]]
"""The task that records, and those that wait for it."""


def _records(events: Sequence[Event], where: Positions, primitive: SyncPrimitive) -> list[Record]:
    """In sequence."""
    if primitive == "notify":
        pairs = dict.fromkeys((e.producer, e.consumer) for e in events)
        rank = where.rank
        return [(p, (c,)) for p, c in sorted(pairs, key=lambda x: (rank[x[0]], rank[x[1]]))]
    waits: dict[int, list[int]] = {}
    for event in events:
        waits.setdefault(event.producer, []).append(event.consumer)
    return [(p, tuple(waits[p])) for p in sorted(waits, key=where.rank.__getitem__)]


def _done(producer: int, clock: Sequence[tuple[int, ...]], where: Positions) -> list[int]:
    """How many tasks of each lane are done when the producer records."""
    done = list(clock[producer])
    done[where.lane[producer]] += 1
    return done


def _needs(waits: Sequence[int], where: Positions) -> dict[int, int]:
    """How many tasks of each lane must be done for the waits to be over."""
    needs: dict[int, int] = {}
    for task in waits:
        lane = where.lane[task]
        needs[lane] = max(needs.get(lane, 0), where.order[task] + 1)
    return needs


def _numbered(
    events: Sequence[Event], records: Sequence[Record], ids: Sequence[int], count: int
) -> EventIds:
    by_wait = {
        (producer, wait): id_
        for (producer, waits), id_ in zip(records, ids, strict=True)
        for wait in waits
    }
    numbered = (replace(e, event_id=by_wait[e.producer, e.consumer]) for e in events)
    return EventIds(tuple(numbered), count)


class _Pool:
    """Ids in use, each filed under one lane with a wait that must be done before reuse."""

    def __init__(self, where: Positions) -> None:
        self._where = where
        self._by_lane: list[list[tuple[int, int]]] = [[] for _ in range(where.lanes)]
        self._needs: dict[int, dict[int, int]] = {}
        self.count = 0

    def release(self, event_id: int, waits: Sequence[int]) -> None:
        """From now on the id is free for whoever knows that ``waits`` are done."""
        needs = _needs(waits, self._where)
        self._needs[event_id] = needs
        self._file(event_id, next(iter(needs)))

    def _file(self, event_id: int, lane: int) -> None:
        heapq.heappush(self._by_lane[lane], (self._needs[event_id][lane], event_id))

    def take(self, done: Sequence[int]) -> int:
        """An id whose waits are all among the ``done`` (tasks done per lane), else a new one."""
        for lane, heap in enumerate(self._by_lane):
            while heap and heap[0][0] <= done[lane]:
                event_id = heapq.heappop(heap)[1]
                open_ = [i for i, n in self._needs[event_id].items() if n > done[i]]
                if not open_:
                    return event_id
                self._file(event_id, open_[0])
        self.count += 1
        return self.count - 1


def require_event_ids(
    needed: int, limits: Limits, streams: int, where: str, primitive: SyncPrimitive = "event"
) -> None:
    """ScheduleError when the device has fewer ids than the schedule holds at once."""
    there = {"event": limits.max_events, "notify": limits.max_notifies}
    if needed <= there[primitive]:
        return
    plural = "notifies" if primitive == "notify" else "event ids"
    other: SyncPrimitive = "event" if primitive == "notify" else "notify"
    instead = "remove sync points"
    if there[other] >= needed:
        name = "events" if other == "event" else "notifies"
        instead = f"use {name} (sync_primitive: {other}), of which there are {there[other]}"
    raise ScheduleError(
        f"{needed} {plural} are needed at once, the device has {there[primitive]}",
        where=where,
        hint=f"place the work on fewer than {streams} streams (--streams), {instead}, or let "
        "`--strategy auto` choose",
    )
