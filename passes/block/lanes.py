"""What each lane of a tensor's last axis is: a lane of one root, times a lane of a table.

Rotary embedding is moves along the last axis (slices, splits, concatenations, reshapes into
pairs), sign changes, products with tables and sums. `Lanes` is the normal form of any such
expression: for each lane a list of terms ``sign * root[lane] * table[column]``. Spellings differ
in their moves and are one in this form.

Arrays of a form have the shape of a value's trailing axes (its *tail*), behind an axis of terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.types import Shape
from gecompiler.passes.block.lane_moves import Move

Ints = NDArray[np.int32]


class TableRoot(NamedTuple):
    """A tensor whose columns products multiply by; ``lead`` are its other axes as they broadcast.

    The tensor's own may have more or fewer ones among them. Columns are numbered through its
    last ``depth`` axes.
    """

    root: str
    lead: Shape
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Lanes:
    """Terms of each lane; a term that is not there has sign 0, one without a table column -1.

    ``lane``, ``sign``, ``table`` and ``column`` are (terms, *tail). ``tables`` are numbered by
    ``table``; ``operands`` are the values by which products multiply.
    """

    root: str
    lane: Ints
    sign: Ints
    table: Ints
    column: Ints
    tables: tuple[TableRoot, ...] = ()
    operands: tuple[str, ...] = ()

    @property
    def tail(self) -> tuple[int, ...]:
        """The sizes of the trailing axes."""
        return self.lane.shape[1:]

    @property
    def terms(self) -> int:
        """The most terms that a lane has."""
        return len(self.lane)

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The four arrays."""
        return self.lane, self.sign, self.table, self.column

    def with_arrays(self, arrays: Sequence[Ints]) -> Lanes:
        """The same form with other arrays."""
        lane, sign, table, column = arrays
        return replace(self, lane=lane, sign=sign, table=table, column=column)


def one_head(form: Lanes) -> tuple[Lanes, int] | None:
    """The form of the first row of the last axis, and how far apart the rows read.

    None when the rows differ in anything but where they read.
    """
    if len(form.tail) == 1:
        return form, 0
    width = form.tail[-1]
    lane, sign, table, column = (a.reshape(form.terms, -1, width) for a in form.arrays)
    for array in (sign, table, column):
        if (array != array[:, :1]).any():
            return None
    rows = lane.shape[1]
    there = sign[:, :1] != 0
    stride = int((lane[:, 1] - lane[:, 0])[there[:, 0]][0]) if rows > 1 and there.any() else width
    wanted = lane[:, :1] + stride * np.arange(rows, dtype=np.int32)[:, None]
    if stride < 1 or (there & (lane != wanted)).any():
        return None
    return form.with_arrays([a[:, 0] for a in (lane, sign, table, column)]), stride


def rotation(dim: int, style: str) -> tuple[Ints, Ints, Ints]:
    """Of each lane made: the lane multiplied by cos, that by sin, and the sign of the latter."""
    lanes = np.arange(dim, dtype=np.int32)
    half = dim // 2
    other = (lanes ^ 1) if style == "interleaved" else (lanes + half) % dim
    first = (lanes % 2 == 0) if style == "interleaved" else lanes < half
    sign = np.where(first, -1, 1).astype(np.int32)
    if style == "interleaved_to_half":
        reads = np.concatenate([lanes[0::2], lanes[1::2]])
        return reads, reads[other], sign
    return lanes, other, sign


def pair_columns(dim: int, style: str) -> Ints:
    """The column of each lane made in a table that has one for each pair."""
    lanes = np.arange(dim, dtype=np.int32)
    return lanes // 2 if style == "interleaved" else lanes % (dim // 2)


def negated(form: Lanes | None) -> Lanes | None:
    """The form with every sign turned."""
    return None if form is None else replace(form, sign=-form.sign)


def applied(move: Move, parts: Sequence[Lanes]) -> Lanes | None:
    """The parts' arrays moved together; None when they are of several roots."""
    first = parts[0]
    if any(p.root != first.root or len(p.tail) != len(first.tail) for p in parts):
        return None
    terms = max(p.terms for p in parts)
    tables, arrays = renumbered(parts)
    padded = [
        [_padded(a, terms, fill) for a, fill in zip(own, (0, 0, -1, 0), strict=True)]
        for own in arrays
    ]
    moved: list[Ints] = []
    for same in zip(*padded, strict=True):
        result = move.apply(same, len(first.tail))
        if result is None:
            return None
        moved.append(result)
    operands = tuple(dict.fromkeys(v for p in parts for v in p.operands))
    return replace(first, tables=tables, operands=operands).with_arrays(moved)


def _padded(array: Ints, terms: int, fill: int) -> Ints:
    missing = terms - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.full((missing, *array.shape[1:]), fill, np.int32)])


def renumbered(
    parts: Sequence[Lanes],
) -> tuple[tuple[TableRoot, ...], list[tuple[Ints, Ints, Ints, Ints]]]:
    """One list of tables for all parts, and their arrays with tables numbered by it."""
    tables = tuple(dict.fromkeys(t for p in parts for t in p.tables))
    arrays = []
    for p in parts:
        places = np.array([*(tables.index(t) for t in p.tables), -1], np.int32)
        arrays.append((p.lane, p.sign, places[p.table], p.column))
    return tables, arrays
