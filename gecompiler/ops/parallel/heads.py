"""Which heads a rank has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class HeadRun(NamedTuple):
    """Query heads that share their KV heads evenly."""

    heads: slice
    groups: slice
    """Their KV heads."""


def heads_of(rank: int, ranks: int, heads: int) -> slice:
    """The query heads of a rank."""
    return slice(heads * rank // ranks, heads * (rank + 1) // ranks)


def groups_of(heads: slice, repeats: int) -> slice:
    """The KV heads that query heads read, ``repeats`` query heads to one."""
    return slice(heads.start // repeats, -(-heads.stop // repeats))


def runs(heads: slice, repeats: int) -> Iterator[HeadRun]:
    """Query heads as runs of whole KV heads, or within one, in order."""
    first = heads.start
    while first < heads.stop:
        last = heads.stop // repeats * repeats
        if first % repeats or last <= first:
            last = min(heads.stop, (first // repeats + 1) * repeats)
        part = slice(first, last)
        yield HeadRun(part, groups_of(part, repeats))
        first = last
