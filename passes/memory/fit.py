"""Offsets for blocks of memory: several planners, of which the smallest result is taken.

A block may take another's memory when everybody who used that one is known to be done by the
task that first writes this one. *By start* takes the blocks as the tasks come, like an
allocator, into the first or the tightest hole; *by size* takes the largest first and looks at
all blocks that are already placed (Pisarchyk, Lee: Efficient memory management for deep neural
net inference, 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_BY_SIZE = 4096
"""*By size* is quadratic; with more blocks only the linear planners run."""

Times = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """Memory wanted by a block.

    ``begin`` and ``last`` are places in the sequence of tasks; ``knows`` is what the task that
    writes it first knows to be done, per lane, and ``needs`` what must be done before the
    memory is free again (None: never).
    """

    bytes: int
    begin: int
    last: int
    knows: Times
    needs: Times | None


@dataclass(frozen=True, slots=True)
class Layout:
    """An offset for each request, and the size of it all."""

    offsets: tuple[int, ...]
    bytes: int
    planner: str


def best_layout(requests: Sequence[Request], floor: Sequence[Times]) -> Layout:
    """The smallest layout found; the first planner's among equals.

    ``floor[i]`` is what every task from place i of the sequence on knows to be done.
    """
    found = [by_start(requests, floor, tightest=True), by_start(requests, floor, tightest=False)]
    live = live_bytes(requests)
    if min(f.bytes for f in found) > live and len(requests) <= MOST_BY_SIZE:
        found.append(by_size(requests))
    return min(found, key=lambda f: f.bytes)


def live_bytes(requests: Sequence[Request]) -> int:
    """The most bytes that are live at once along the sequence: no layout can be smaller."""
    return _peak(requests)[0]


def live_at_peak(requests: Sequence[Request]) -> list[int]:
    """The requests that are live where the most bytes are, the largest first."""
    place = _peak(requests)[1]
    found = [
        i
        for i, r in enumerate(requests)
        if r.begin <= place and (r.needs is None or r.last >= place)
    ]
    return sorted(found, key=lambda i: (-requests[i].bytes, i))


def _peak(requests: Sequence[Request]) -> tuple[int, int]:
    """(bytes, place in the sequence) where the most is live."""
    changes: dict[int, list[int]] = {}
    for request in requests:
        changes.setdefault(request.begin, [0, 0])[0] += request.bytes
        if request.needs is not None:
            changes.setdefault(request.last, [0, 0])[1] += request.bytes
    most, at, now = 0, -1, 0
    for place in sorted(changes):
        grow, shrink = changes[place]
        now += grow
        if now > most:
            most, at = now, place
        now -= shrink
    return most, at


def by_start(requests: Sequence[Request], floor: Sequence[Times], *, tightest: bool) -> Layout:
    """Takes blocks in the order of the sequence; near-linear."""
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for i, request in enumerate(requests):
        begins.setdefault(request.begin, []).append(i)
        if request.needs is not None:
            ends.setdefault(request.last, []).append(i)
    arena = _Arena(tightest)
    offsets = [0] * len(requests)
    for step, place in enumerate(sorted(begins.keys() | ends.keys())):
        if step % 64 == 0:
            arena.settle(floor[place])
        for i in sorted(begins.get(place, ()), key=lambda i: (-requests[i].bytes, i)):
            offsets[i] = arena.take(requests[i].bytes, requests[i].knows)
        for i in ends.get(place, ()):
            needs = requests[i].needs
            if requests[i].bytes and needs is not None:
                arena.give(offsets[i], requests[i].bytes, needs)
    return Layout(
        tuple(offsets), arena.top, "best fit by start" if tightest else "first fit by start"
    )


class _Arena:
    """Free holes below ``top``, by offset, each with what must be done before it is used."""

    def __init__(self, tightest: bool) -> None:
        self.tightest = tightest
        self.top = 0
        self.holes: list[tuple[int, int, Times]] = []

    def take(self, size: int, knows: Times) -> int:
        if not size:
            return 0
        first, stop, offset = self._find(size, knows)
        end = offset + size
        self.top = max(self.top, end)
        self.holes[first:stop] = [
            (max(a, end), a + n - max(a, end), needs)
            for a, n, needs in self.holes[first:stop]
            if a + n > end
        ]
        return offset

    def _find(self, size: int, knows: Times) -> tuple[int, int, int]:
        """(first, stop, offset) of adjacent holes that may be used, or of the arena's end."""
        best: tuple[int, int, int] | None = None
        best_space = 0
        run, run_offset, end = 0, 0, -1
        for i, (offset, length, needs) in enumerate(self.holes):
            if not _known(needs, knows):
                end = -1
                continue
            if offset != end:
                run, run_offset = i, offset
            end = offset + length
            space = end - run_offset
            if space >= size and (best is None or space < best_space):
                best, best_space = (run, i + 1, run_offset), space
                if not self.tightest:
                    return best
        if best is not None:
            return best
        if end == self.top and self.holes:
            return run, len(self.holes), run_offset  # the last hole, and what is beyond it
        return len(self.holes), len(self.holes), self.top

    def give(self, offset: int, size: int, needs: Times) -> None:
        low, high = 0, len(self.holes)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.holes[middle][0] < offset else (low, middle)
        self.holes.insert(low, (offset, size, needs))
        self._merge(low)

    def _merge(self, at: int) -> None:
        for i in (at, at - 1):
            if 0 <= i < len(self.holes) - 1:
                (a, n, x), (b, m, y) = self.holes[i], self.holes[i + 1]
                if a + n == b and (x == y or len(x) == 1):
                    self.holes[i : i + 2] = [(a, n + m, tuple(map(max, x, y)))]

    def settle(self, floor: Times) -> None:
        """Forgets what everybody knows by now, and joins holes that differed only in that."""
        holes = [(a, n, (0,) * len(x) if _known(x, floor) else x) for a, n, x in self.holes]
        joined: list[tuple[int, int, Times]] = []
        for a, n, x in holes:
            if joined and joined[-1][0] + joined[-1][1] == a and joined[-1][2] == x:
                joined[-1] = (joined[-1][0], joined[-1][1] + n, x)
            else:
                joined.append((a, n, x))
        self.holes = joined


def _known(needs: Times, knows: Times) -> bool:
    return all(n <= k for n, k in zip(needs, knows, strict=True))


def by_size(requests: Sequence[Request]) -> Layout:
    """Takes the largest block first, into the first hole among those that live beside it."""
    lanes = len(requests[0].knows) if requests else 1
    never = np.iinfo(np.int64).max
    knows = np.array([r.knows for r in requests], np.int64).reshape(-1, lanes)
    needs = np.array(
        [r.needs if r.needs is not None else (never,) * lanes for r in requests], np.int64
    ).reshape(-1, lanes)
    size = np.array([r.bytes for r in requests], np.int64)
    offset = np.zeros(len(requests), np.int64)
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].bytes, requests[i].begin, i))
    done: list[int] = []
    for i in order:
        if not size[i]:
            continue
        placed = np.array(done, np.int64)
        earlier = (needs[placed] <= knows[i]).all(axis=1)
        later = (needs[i] <= knows[placed]).all(axis=1)
        beside = placed[~(earlier | later)]
        offset[i] = _first_gap(offset[beside], size[beside], int(size[i]))
        done.append(i)
    top = int((offset + size).max()) if len(requests) else 0
    return Layout(tuple(int(o) for o in offset), top, "first fit by size")


def _first_gap(offset: np.ndarray, size: np.ndarray, wanted: int) -> int:
    if not len(offset):
        return 0
    order = np.argsort(offset, kind="stable")
    starts = offset[order]
    ends = np.maximum.accumulate(starts + size[order])
    before = np.concatenate(([0], ends[:-1]))
    fits = np.nonzero(starts - before >= wanted)[0]
    return int(before[fits[0]]) if len(fits) else int(ends[-1])
