"""Hardware ids for events, used again as soon as that is safe.

All waits on one record share its id. A record may take an id over once every wait on the id's
last record is done: each waiting task is ordered before, or is, the recording task.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Event
from gecompiler.passes.streams.sync import Positions


@dataclass(frozen=True)
class EventIds:
    """The events with their ids, and how many ids there are."""

    events: tuple[Event, ...]
    count: int


def allocate_event_ids(
    events: Sequence[Event], clock: Sequence[tuple[int, ...]], where: Positions
) -> EventIds:
    """Gives every event an id, 0 upwards, by a greedy pass over the records in sequence."""
    waits: dict[int, list[int]] = {}
    for event in events:
        waits.setdefault(event.producer, []).append(event.consumer)
    pool = _Pool(where)
    ids: dict[int, int] = {}
    for producer in sorted(waits, key=where.rank.__getitem__):
        done = list(clock[producer])
        done[where.lane[producer]] += 1
        ids[producer] = pool.take(done)
        pool.release(ids[producer], waits[producer])
    return EventIds(tuple(replace(e, event_id=ids[e.producer]) for e in events), pool.count)


class _Pool:
    """Ids in use, each filed under one lane with a wait that must be done before reuse."""

    def __init__(self, where: Positions) -> None:
        self._where = where
        self._by_lane: list[list[tuple[int, int]]] = [[] for _ in range(where.lanes)]
        self._needs: dict[int, dict[int, int]] = {}
        self.count = 0

    def release(self, event_id: int, waits: Sequence[int]) -> None:
        """From now on the id is free for whoever knows that ``waits`` are done."""
        needs: dict[int, int] = {}
        for task in waits:
            lane = self._where.lane[task]
            needs[lane] = max(needs.get(lane, 0), self._where.order[task] + 1)
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


def require_event_ids(needed: int, available: int, streams: int, where: str) -> None:
    """ScheduleError when the device has fewer event ids than the schedule holds at once."""
    if needed > available:
        raise ScheduleError(
            f"{needed} event ids are needed at once, the device has {available}",
            where=where,
            hint=f"place the work on fewer than {streams} streams (--streams), remove sync "
            "points, or let `--strategy auto` choose",
        )
