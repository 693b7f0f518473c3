"""Small encodings that keep twenty thousand tasks within a few megabytes of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


class StringTable:
    """Strings by number. `encoded` is sorted, each string without what it shares with the last.

    Numbers are handed out while the strings are gathered; `ranks` gives their places in the
    sorted table, which is what is written.
    """

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The string's number."""
        return self._number.setdefault(text, len(self._number))

    def ranks(self) -> list[int]:
        """The place of each number's string in the sorted table."""
        places = [0] * len(self._number)
        for place, text in enumerate(sorted(self._number)):
            places[self._number[text]] = place
        return places

    def encoded(self) -> dict[str, list[int] | list[str]]:
        """``shared[i]`` UTF-16 units of the string before, then ``rest[i]``."""
        shared: list[int] = []
        rest: list[str] = []
        last = ""
        for text in sorted(self._number):
            count = _common(last, text)
            shared.append(_units(text[:count]))
            rest.append(text[count:])
            last = text
        return {"shared": shared, "rest": rest}


def _common(a: str, b: str) -> int:
    limit = min(len(a), len(b))
    for i in range(limit):
        if a[i] != b[i]:
            return i
    return limit


def _units(text: str) -> int:
    """UTF-16 code units, which is how JavaScript counts."""
    return len(text) + sum(ord(c) > 0xFFFF for c in text)


def deltas(values: Sequence[int]) -> list[int]:
    """The first value, then the steps."""
    return [*values[:1], *(b - a for a, b in pairwise(values))]


def ragged(rows: Iterable[Sequence[int]]) -> dict[str, list[int]]:
    """Rows of different lengths as their lengths and all their values."""
    lengths: list[int] = []
    values: list[int] = []
    for row in rows:
        lengths.append(len(row))
        values.extend(row)
    return {"lengths": lengths, "values": values}
