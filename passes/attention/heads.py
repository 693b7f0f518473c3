"""Which of the indices that Q, K and V share are heads, and which are batch."""

from __future__ import annotations

from collections.abc import Iterable

from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.layout import Axis, Layout


def split_heads(whole: Axis, places: Iterable[Layout]) -> tuple[Axis, Axis]:
    """(batch, heads), each major to minor, of the shared factors ``whole``.

    Any split is correct; the true one is read from the first of ``places`` that tells the two
    apart. A place is the axes of some tensor beside those of queries, keys and width; with two
    or more of them the first is the batch. Else a folded ``B*H`` axis ends in the heads.
    """
    for place in places:
        if len(place) < 2:
            continue
        if {f for axis in place for f in lay.flat(axis)} == set(whole):
            batch = lay.flat(place[0])
            return _ordered(whole, batch), tuple(f for f in whole if f not in batch)
    return (whole[:-1], whole[-1:]) if len(whole) > 1 else (whole, ())


def beside(layout: Layout, *taken: Axis) -> Layout:
    """The axes of a layout without those given (each taken out once); none if one is missing."""
    rest = list(layout)
    for axis in taken:
        index = next((n for n, a in enumerate(rest) if lay.same_axis(a, axis)), None)
        if index is None:
            return ()
        del rest[index]
    return tuple(rest)


def heads_of_rows(heads: Axis, queries: Axis, places: Iterable[Layout]) -> tuple[Axis, Axis]:
    """(heads, queries) when rows of Q are (query head in its group, query).

    Grouped heads may share one product: Q ``(B, H, S, D)`` seen as ``(B, G, H/G * S, D)``. The
    factors of the rows that some view of Q has in one axis with heads alone are heads.
    """
    own, rows = set(lay.flat(heads)), lay.flat(queries)
    for place in places:
        for axis in place:
            factors = lay.flat(axis)
            moved = tuple(f for f in factors if f in rows)
            whole = len(place) >= 4 and bool(moved) and any(f in own for f in factors)
            if (
                whole
                and all(f in own or f in moved for f in factors)
                and rows[: len(moved)] == moved
            ):
                return (*heads, *moved), rows[len(moved) :]
    return heads, queries


def _ordered(whole: Axis, part: Axis) -> Axis:
    return tuple(f for f in whole if f in part)
