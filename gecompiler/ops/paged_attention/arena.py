"""Stretches of a range of slots, taken first fit (Knuth, TAOCP volume 1, section 2.5)."""

from __future__ import annotations

from bisect import bisect_left


class Arena:
    """Slots 0..size-1; stretches are taken where they fit first, and join when given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holes = [(0, size)]

    @property
    def free(self) -> int:
        """Slots that are not taken."""
        return sum(length for _, length in self._holes)

    @property
    def largest(self) -> int:
        """The longest stretch that can be taken."""
        return max((length for _, length in self._holes), default=0)

    def take(self, length: int) -> int | None:
        """The first of ``length`` slots in a row; None where no hole is that long."""
        for at, (start, there) in enumerate(self._holes):
            if there >= length:
                rest = [(start + length, there - length)] if there > length else []
                self._holes[at : at + 1] = rest
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        """Frees a stretch that was taken."""
        if not length:
            return
        at, end = bisect_left(self._holes, (start, 0)), start + length
        first = last = at
        if at and sum(self._holes[at - 1]) == start:
            first, start = at - 1, self._holes[at - 1][0]
        if at < len(self._holes) and self._holes[at][0] == end:
            last, end = at + 1, end + self._holes[at][1]
        self._holes[first:last] = [(start, end - start)]
