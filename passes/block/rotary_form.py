"""Which rotation a form of lanes is, if it is one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.block_ops import STYLES, Rotary
from gecompiler.ir.types import Shape
from gecompiler.passes.block.lanes import Lanes, TableRoot, one_head, pair_columns, rotation

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of tables: one for each lane made, or ``halved`` one for a pair.

    They are ``width`` neighbours of one root, from ``start`` on; or, with ``picks``, each is
    (root, column, sign) of one of the ``roots``.
    """

    roots: tuple[TableRoot, ...]
    start: int
    width: int
    halved: bool
    picks: tuple[tuple[int, int, int], ...] = ()

    @property
    def lead(self) -> Shape:
        """The other axes, as they broadcast."""
        return self.roots[0].lead


@dataclass(frozen=True, slots=True)
class Rotation:
    """``spec`` applied to the lanes of ``root`` from ``window`` on, as many as are made.

    ``backward``: by the opposite angle. With ``heads``, the sizes of axes that the last one of
    the root is split into, each head reads ``stride`` lanes further on than the one before.
    """

    spec: Rotary
    root: str
    window: int
    width: int
    cos: Table
    sin: Table
    backward: bool = False
    heads: tuple[int, ...] = ()
    stride: int = 0


def rotation_of(whole: Lanes) -> Rotation | None:
    """The rotation that a form is; None when it is none, or of no style that there is."""
    found = one_head(whole) if whole.terms == 2 else None
    if found is None:
        return None
    form, stride = found
    heads = whole.tail[:-1]
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
        tables = _tables(form, block, window + start, style)
        if tables is not None:
            cos, sin, backward = tables
            if heads:
                cos, sin = (_behind_heads(t, len(heads)) for t in (cos, sin))
            spec = Rotary(dim, start, style)
            return Rotation(spec, form.root, window, width, cos, sin, backward, heads, stride)
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
    if (sign[0] != 1).any():
        return None
    backward = bool((direction < 0).all())
    signs = np.abs(direction) if backward else direction
    cos, sin = (_table(form, table[n], column[n], s, style) for n, s in ((0, sign[0]), (1, signs)))
    return None if cos is None or sin is None else (cos, sin, backward)


def _table(form: Lanes, table: Ints, column: Ints, signs: Ints, style: str) -> Table | None:
    """The columns that one of the two factors has: side by side if they are, else one by one."""
    dim, start = len(column), int(column.min())
    if (table == table[0]).all() and (signs == 1).all():
        root = form.tables[table[0]]
        if (column == start + np.arange(dim)).all():
            return Table((root,), start, dim, halved=False)
        if (column == start + pair_columns(dim, style)).all():
            return Table((root,), start, dim // 2, halved=True)
    numbers = sorted({int(n) for n in table})
    roots = tuple(form.tables[n] for n in numbers)
    if any(root.lead != roots[0].lead for root in roots):
        return None
    read = zip(table, column, signs, strict=True)
    picks = tuple((numbers.index(int(n)), int(c), int(s)) for n, c, s in read)
    return Table(roots, 0, dim, halved=False, picks=picks)


def _behind_heads(table: Table, count: int) -> Table:
    """The table with a one for each axis of heads."""
    roots = (r._replace(lead=(*r.lead, *(1,) * count)) for r in table.roots)
    return replace(table, roots=tuple(roots))
