"""The lanes of a captured timeline: tasks of one stream that overlap get lanes of their own.

Profilers give collectives no stream, and round times so that a task may seem to start before
the one before it ended.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Sequence

from gecompiler.profiles.records import Kernel, is_communication

ROUNDING_NS = 10
"""Overlaps up to here are rounding: the earlier task ends where the later begins."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


def lay_out(kernels: Sequence[Kernel]) -> tuple[list[tuple[int, int, int]], dict[int, str]]:
    """(stream, start, end) of each kernel of a device in time order, and the streams' names.

    Streams keep the numbers that the profile gives; lanes that are none come after them.
    """
    numbers = _numbers(kernels)
    first_free = max(numbers.values(), default=-1) + 1
    groups: dict[str, list[int]] = defaultdict(list)
    for index, kernel in enumerate(kernels):
        groups[kernel.stream or _unnamed(kernel)].append(index)
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(kernels)
    names: dict[int, str] = {}
    # Named streams first, so that the lanes of collectives come last.
    for stream in sorted(groups, key=lambda s: (s not in numbers, numbers.get(s, 0), s)):
        count = _lanes(kernels, groups[stream], places)
        owned = list(range(first_free, first_free + count - (stream in numbers)))
        first_free += len(owned)
        lanes = [numbers[stream], *owned] if stream in numbers else owned
        title = f"Stream {stream}" if stream in numbers else stream.strip()
        names |= {n: f"{title} +{i}" if i else title for i, n in enumerate(lanes)}
        for index in groups[stream]:
            lane, start, end = places[index]
            places[index] = (lanes[lane], start, end)
    return places, names


def _unnamed(kernel: Kernel) -> str:
    """The lane of what has no stream; the blank keeps it apart from a stream of that name."""
    talks = is_communication(kernel.core, kernel.op_type)
    return " Communication" if talks else " Computing"


def _numbers(kernels: Sequence[Kernel]) -> dict[str, int]:
    """A number for each stream: its own where it is a sensible one."""
    streams = sorted({k.stream for k in kernels if k.stream}, key=lambda s: (len(s), s))
    found: dict[str, int] = {}
    for stream in streams:
        if _NUMBER.fullmatch(stream):
            found[stream] = int(stream)
    free = max(found.values(), default=-1) + 1
    for stream in streams:
        if stream not in found:
            found[stream] = free
            free += 1
    return found


def _lanes(
    kernels: Sequence[Kernel], indices: Sequence[int], places: list[tuple[int, int, int]]
) -> int:
    """Gives each kernel of a stream the lowest lane that is free; the number of lanes. O(n log n).

    The lane is left in ``places``, where the stream's number belongs.
    """
    busy: list[tuple[int, int]] = []  # (end, lane), the earliest first
    idle: list[int] = []
    last: dict[int, int] = {}
    count = 0
    for index in indices:
        start, end = kernels[index].start_ns, kernels[index].end_ns
        while busy and busy[0][0] <= start + ROUNDING_NS:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        if idle:
            lane = heapq.heappop(idle)
        else:
            lane, count = count, count + 1
        before = last.get(lane)
        if before is not None and places[before][2] > start:
            _, began, _ = places[before]
            places[before] = (lane, began, max(began, start))
            start = max(start, places[before][2])
        places[index] = (lane, start, max(start, end))
        last[lane] = index
        heapq.heappush(busy, (max(start, end), lane))
    return count
