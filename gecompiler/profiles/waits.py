"""Why a stream stood idle before a task: another stream, the host, or nothing that is known.

Where the profile has the streams' event waits or the host's launches, they decide; else a task
of another stream that ended just before the start is taken for what was waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gecompiler.ir.timeline import WaitCause

MOST_LOOKED_AT = 32
"""Of tasks without a length any number may end at once."""

Lane = tuple[int, int]
"""Rank and stream."""

GAP_NS = 1000
"""Streams stand idle this long between two tasks without waiting for anything."""

SLACK_NS = 5000
"""A task starts within this time after what it waited for, or that was no cause."""


class Run(NamedTuple):
    """A task on its lane, in ns since the timeline's start."""

    lane: Lane
    start_ns: int
    end_ns: int
    issued_ns: int | None
    """When the host issued it, where the profile says so."""


class Idle(NamedTuple):
    """How long a stream stood idle before a task, for which task, and why."""

    wait_ns: int
    waited_for: int | None
    cause: WaitCause


def attribute(runs: Sequence[Run], waits: Mapping[Lane, Sequence[tuple[int, int]]]) -> list[Idle]:
    """The idle time before each run. ``waits``: intervals at events, by lane. O(n log n)."""
    lanes: dict[Lane, list[int]] = defaultdict(list)
    for number in sorted(range(len(runs)), key=lambda n: (runs[n].start_ns, runs[n].end_ns, n)):
        lanes[runs[number].lane].append(number)
    ends = _Ends(runs)
    stops = {lane: sorted(end for _, end in found) for lane, found in waits.items()}
    found: list[Idle] = [Idle(0, None, "start")] * len(runs)
    for lane, numbers in sorted(lanes.items()):
        last: int | None = None
        for number in numbers:
            found[number] = _one(runs, number, last, ends, stops.get(lane, ()))
            last = number
    return found


def _one(
    runs: Sequence[Run], number: int, last: int | None, ends: _Ends, stops: Sequence[int]
) -> Idle:
    run = runs[number]
    free = runs[last].end_ns if last is not None else 0
    idle = max(0, run.start_ns - free)
    if idle <= GAP_NS and last is not None:
        return Idle(idle, last, "stream")
    stood = bisect_right(stops, run.start_ns) > bisect_left(stops, free)
    if not stood and run.issued_ns is not None and run.issued_ns >= free:
        return Idle(idle, last, "resource")
    other = ends.before(run, free, None if stood else SLACK_NS)
    if other is not None:
        return Idle(idle, other, "event")
    if last is None:
        return Idle(idle, None, "start")
    return Idle(idle, last, "event" if stood else "resource")


class _Ends:
    """The ends of a rank's runs, to be searched."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._by_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, run in enumerate(runs):
            self._by_rank[run.lane[0]].append((run.end_ns, number))
        for ends in self._by_rank.values():
            ends.sort()

    def before(self, run: Run, free_ns: int, slack_ns: int | None) -> int | None:
        """The run of another stream that ended last from ``free_ns`` to the run's start."""
        ends = self._by_rank[run.lane[0]]
        at = bisect_right(ends, (run.start_ns, len(self._runs))) - 1
        earliest = free_ns if slack_ns is None else max(free_ns, run.start_ns - slack_ns)
        for end, number in reversed(ends[max(0, at - MOST_LOOKED_AT + 1) : at + 1]):
            if end < earliest:
                return None
            other = self._runs[number]
            if other.lane != run.lane and other.start_ns < run.start_ns:
                return number
        return None
