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


def _ordered(whole: Axis, part: Axis) -> Axis:
    return tuple(f for f in whole if f in part)
