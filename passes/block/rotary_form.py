"""Which rotation a form of lanes is, if it is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.block_ops import STYLES, Rotary
from gecompiler.passes.block.lanes import Lanes, TableRoot, pair_columns, rotation

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns ``start`` on of a table: one for each lane made, or ``halved`` one for a pair."""

    root: TableRoot
    start: int
    width: int
    halved: bool


@dataclass(frozen=True, slots=True)
class Rotation:
    """``spec`` applied to the lanes of ``root`` from ``window`` on, as many as are made.

    ``backward``: by the opposite angle.
    """

    spec: Rotary
    root: str
    window: int
    width: int
    cos: Table
    sin: Table
    backward: bool = False


def rotation_of(form: Lanes) -> Rotation | None:
    """The rotation that a form is; None when it is none, or of no style that there is."""
    if form.terms != 2 or len(form.tail) != 1:
        return None
    turned = (form.sign != 0).all(axis=0) & (form.table >= 0).all(axis=0)
    places = np.flatnonzero(turned)
    dim = len(places)
    if dim < 2 or dim % 2 or places[-1] - places[0] != dim - 1:
        return None
    start, width = int(places[0]), form.tail[0]
    block = [a[:, places] for a in form.arrays]
    window = int(block[0].min()) - start
    if not _passes_through(form, turned, window):
        return None
    for style in STYLES:
        found = _tables(form, block, window + start, style)
        if found is not None:
            return Rotation(Rotary(dim, start, style), form.root, window, width, *found)
    return None


def _passes_through(form: Lanes, turned: NDArray[np.bool_], window: int) -> bool:
    """Whether all lanes that are not turned are those of the root, in their places."""
    rest = np.flatnonzero(~turned)
    lane, sign, table = (a[:, rest] for a in (form.lane, form.sign, form.table))
    alone = (sign != 0).sum(axis=0) == 1
    plain = np.where(sign != 0, (sign == 1) & (table < 0) & (lane == rest + window), True)
    return bool(alone.all() and plain.all())


def _tables(
    form: Lanes, block: list[Ints], first: int, style: str
) -> tuple[Table, Table, bool] | None:
    """The tables of cos and sin, and whether they turn backward; None: not in that style."""
    lane, sign, table, column = block
    own, other, sine_sign = rotation(lane.shape[1], style)
    swapped = lane[0] != own + first
    lane, sign, table, column = (np.where(swapped, a[::-1], a) for a in (lane, sign, table, column))
    if (lane[0] != own + first).any() or (lane[1] != other + first).any():
        return None
    direction = sign[1] * sine_sign
    if (sign[0] != 1).any() or (direction != direction[0]).any():
        return None
    cos, sin = (_table(form, table[n], column[n], style) for n in (0, 1))
    return None if cos is None or sin is None else (cos, sin, bool(direction[0] < 0))


def _table(form: Lanes, table: Ints, column: Ints, style: str) -> Table | None:
    """The columns that one of the two factors has, if they lie beside one another."""
    dim = len(column)
    if (table != table[0]).any():
        return None
    root, start = form.tables[table[0]], int(column.min())
    if (column == start + np.arange(dim)).all():
        return Table(root, start, dim, halved=False)
    if (column == start + pair_columns(dim, style)).all():
        return Table(root, start, dim // 2, halved=True)
    return None
