"""Tables of cos and sin: as few columns as they need.

Exporters write each number twice, once for either lane of a pair, because the angles are
joined to themselves first. Where that is proven, the table is computed once for each pair.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.block.columns import aligned, columns, flattened, picked
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.lanes import pair_columns
from gecompiler.passes.block.patterns import with_number
from gecompiler.passes.block.rotary_form import Table
from gecompiler.passes.rewriting import Rewriter

_MAX_DEPTH = 16
_UNARY = ("Cos", "Sin", "Cast", "Neg", "Identity")


@dataclass(frozen=True, slots=True)
class _Made:
    """``result`` was made of a value that ``source`` makes, by ``maker``."""

    source: Op | None
    result: str
    maker: Op | None

    def is_current(self, r: Rewriter, value: str) -> bool:
        """Whether both values are still there, and made as they were."""
        there = r.graph.has_value(self.result) and r.graph.producer(self.result) is self.maker
        return there and r.graph.producer(value) is self.source


@dataclass
class HalfTables:
    """Finds and makes tables with one column for each pair; remembers what it made."""

    _made: dict[tuple[Hashable, str], _Made] = field(default_factory=dict)

    def operand(self, r: Rewriter, table: Table, style: str) -> str:
        """The value that holds a table's columns and, where it can be, nothing twice."""
        root = table.roots[0].root
        known = self._known(r, (table, style), root)
        if known is not None:
            return known
        if table.picks:
            value = picked(r, table)
        else:
            whole = flattened(r, root, table.roots[0].depth)
            value = columns(r, whole, table.start, table.width)
        half = None if table.halved else self.halved(r, value, style)
        return self._note(r, (table, style), root, aligned(r, half or value, table.lead))

    def halved(self, r: Rewriter, value: str, style: str, depth: int = 0) -> str | None:
        """The columns of one lane of each pair, if those of both are proven equal."""
        known = self._known(r, (value, style), value)
        found = known or _half(self, r, value, style, depth)
        return None if found is None else self._note(r, (value, style), value, found)

    def _known(self, r: Rewriter, key: tuple[Hashable, str], value: str) -> str | None:
        known = self._made.get(key)
        return known.result if known is not None and known.is_current(r, value) else None

    def _note(self, r: Rewriter, key: tuple[Hashable, str], value: str, result: str) -> str:
        self._made[key] = _Made(r.graph.producer(value), result, r.graph.producer(result))
        return result


def _half(memo: HalfTables, r: Rewriter, value: str, style: str, depth: int) -> str | None:
    if depth > _MAX_DEPTH:
        return None
    if value in r.graph.constants:
        return _half_constant(r, value, style)
    op = r.graph.producer(value)
    if op is None or op.domain:
        return None
    if op.op_type in _UNARY or op.op_type in ("Mul", "Div"):
        return _half_elementwise(memo, r, op, style, depth)
    if op.op_type == "Gather" and _takes_rows(r, op):
        half = memo.halved(r, op.inputs[0], style, depth + 1)
        return None if half is None else _emit(r, op, (half, op.inputs[1]))
    return _half_moved(memo, r, value, style, depth)


def _half_moved(memo: HalfTables, r: Rewriter, value: str, style: str, depth: int) -> str | None:
    """A value whose lanes are joined to themselves, or that is a view of one that is halved."""
    form, shape = LaneReader(r, loose=True).moves(value), r.facts.shape(value)
    if form is None or not shape or form.root == value or len(form.tail) != 1 or form.tail[0] % 2:
        return None
    half, lanes, start = form.tail[0] // 2, form.lane[0], int(form.lane.min())
    if (form.sign != 1).any():
        return None
    if (lanes == start + pair_columns(2 * half, style)).all():
        return aligned(r, columns(r, form.root, start, half), shape[:-1])
    whole = (r.facts.shape(form.root) or (0,))[-1] == 2 * half
    if not whole or (lanes != np.arange(2 * half)).any():
        return None
    found = memo.halved(r, form.root, style, depth + 1)
    return None if found is None else aligned(r, found, shape[:-1])


def _half_constant(r: Rewriter, value: str, style: str) -> str | None:
    array = r.facts.array(value)
    if array is None or not array.ndim or array.shape[-1] % 2 or array.dtype.kind == "O":
        return None
    dim = array.shape[-1]
    first = slice(0, dim, 2) if style == "interleaved" else slice(0, dim // 2)
    half = array[..., first]
    if not np.array_equal(array, half[..., pair_columns(dim, style)], equal_nan=True):
        return None
    constant = Constant.of(np.ascontiguousarray(half), r.facts.dtype(value))
    return r.constant(constant, f"{value}_half")


def _half_elementwise(memo: HalfTables, r: Rewriter, op: Op, style: str, depth: int) -> str | None:
    """A function of one operand is halved where that is."""
    if op.op_type in _UNARY:
        half = memo.halved(r, op.inputs[0], style, depth + 1)
        return None if half is None else _emit(r, op, (half,))
    for x, _ in with_number(r, op):
        index = op.inputs.index(x)
        if r.facts.shape(op.inputs[1 - index]) not in ((), (1,)):
            continue
        half = memo.halved(r, x, style, depth + 1)
        if half is not None:
            return _emit(r, op, (*op.inputs[:index], half, *op.inputs[index + 1 :]))
    return None


def _takes_rows(r: Rewriter, op: Op) -> bool:
    """Whether a Gather takes whole rows of a table."""
    data = r.facts.shape(op.inputs[0])
    return bool(data) and len(data) > 1 and op.attr("axis", 0) % len(data) != len(data) - 1  # type: ignore[arg-type]


def _emit(r: Rewriter, op: Op, inputs: tuple[str, ...]) -> str:
    """The same op for half of the columns."""
    known = r.graph.tensor(op.outputs[0])
    assert known is not None
    assert known.shape is not None
    last = known.shape[-1]
    assert isinstance(last, int)
    kind = TensorType(known.dtype, (*known.shape[:-1], last // 2))
    return r.emit(op.op_type, inputs, kind, attrs=op.attrs, info=op.info, stem=op.name)
