"""Contents of small tensors that ops compute: arithmetic and reductions.

What ONNX computes in a tensor's element type is followed in exact integers; an element that
the type would round or wrap is unknown (`infer_arrays.fits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gecompiler.ir.dim_bounds import at_least, largest, proven_order, smallest
from gecompiler.ir.dim_division import exact_quotient
from gecompiler.ir.dims import Dim, floordiv, mod
from gecompiler.ir.infer.arrays import SymbolicArray, known
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.values import ValueRule
from gecompiler.ir.types import TensorType

Binary = Callable[[Dim, Dim], "Dim | None"]


def _unsigned(type_: TensorType) -> bool:
    return type_.dtype.short[0] == "u"


def elementwise(node: Node, count: int, type_: TensorType) -> list[list[Dim | None]] | None:
    """The first inputs' elements, broadcast to the output's shape; None when all are unknown."""
    columns: list[list[Dim | None]] = []
    for index in range(count):
        found = node.value(index)
        if found is None:
            return None
        if found.shape == type_.shape:
            columns.append(list(found.items))
        else:
            columns.append(np.broadcast_to(found.objects(), type_.sizes).reshape(-1).tolist())
    return columns


def _fold(combine: Binary) -> ValueRule:
    """A rule for an op that combines all its inputs from left to right."""

    def rule(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
        columns = elementwise(node, len(node.op.inputs), type_)
        if columns is None:
            return None
        items: list[Dim | None] = columns[0]
        for other in columns[1:]:
            items = [
                None if a is None or b is None else combine(a, b)
                for a, b in zip(items, other, strict=True)
            ]
        if _unsigned(type_):
            items = [i if i is not None and at_least(i, 0) else None for i in items]
        return known(type_.sizes, items, type_.dtype)

    return rule


def _unary(compute: Callable[[Dim], Dim | None]) -> ValueRule:
    def rule(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
        found = node.value(0)
        if found is None:
            return None
        items = [None if i is None else compute(i) for i in found.items]
        return known(found.shape, items, type_.dtype)

    return rule


def _mul(node: Node, output: int, type_: TensorType) -> SymbolicArray | None:
    """Products; 0 times an unknown integer is 0, but not times an unknown float (NaN)."""
    if type_.dtype.is_float:
        return _fold(lambda a, b: a * b)(node, output, type_)
    columns = elementwise(node, 2, type_)
    if columns is None:
        return None
    items: list[Dim | None] = []
    for a, b in zip(*columns, strict=True):
        if a == 0 or b == 0:
            items.append(0)
        else:
            items.append(None if a is None or b is None else a * b)
    return known(type_.sizes, items, type_.dtype)


def _div(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    """Integer division truncates; a float quotient is known where it is exact."""
    columns = elementwise(node, 2, type_)
    if columns is None:
        return None
    divide = exact_quotient if type_.dtype.is_float else truncated
    items = [
        None if a is None or b is None or b == 0 else divide(a, b)
        for a, b in zip(*columns, strict=True)
    ]
    return known(type_.sizes, items, type_.dtype)


def truncated(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` towards zero where the signs are proven or the division is exact, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if (a < 0) == (b < 0) else -(-a // b)
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact
    return floordiv(a, b) if at_least(a, 0) and at_least(b, 0) else None


def _mod(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    columns = elementwise(node, 2, type_)
    if columns is None:
        return None
    c_like = bool(node.op.attr("fmod", 0))
    items = [
        None if a is None or b is None or b == 0 else _remainder(a, b, c_like)
        for a, b in zip(*columns, strict=True)
    ]
    return known(type_.sizes, items, type_.dtype)


def _remainder(a: Dim, b: Dim, c_like: bool) -> Dim | None:
    if not c_like:
        return mod(a, b)
    quotient = truncated(a, b)
    return None if quotient is None else a - quotient * b


def _pow(a: Dim, b: Dim) -> Dim | None:
    if not isinstance(b, int) or not 0 <= b <= 8:
        return None
    result: Dim = 1
    for _ in range(b):
        result = result * a
    return result


def _reduce(combine: Binary, start: int | None) -> ValueRule:
    """Reductions over all elements or some axes, from ``start`` for empty ones."""

    def rule(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
        found = node.value(0)
        if found is None:
            return None
        axes = node.ints("axes", 1)
        if axes is None and node.has(1):
            return None
        if not axes and node.op.attr("noop_with_empty_axes", 0):
            return found
        rank = len(found.shape)
        gone = node.fronts(axes, rank) if axes else tuple(range(rank))
        kept = [a for a in range(rank) if a not in gone]
        rows = np.transpose(found.objects(), [*kept, *gone])
        counts = [math.prod(found.shape[a] for a in axes_) for axes_ in (kept, gone)]
        rows = rows.reshape(counts)  # spelled out: -1 has no meaning for arrays without elements
        items = [_total(row, combine, start) for row in rows.tolist()]
        return known(type_.sizes, items, type_.dtype)

    return rule


def _total(row: list[Dim | None], combine: Binary, start: int | None) -> Dim | None:
    total: Dim | None = start
    for index, item in enumerate(row):
        first = start is None and index == 0
        if item is None or (total is None and not first):
            return None
        total = item if first or total is None else combine(total, item)
    return total


def _clip(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    low, high = node.scalar(1), node.scalar(2)
    unknown = (node.has(1) and low is None) or (node.has(2) and high is None)
    if found is None or unknown or "min" in node.op.attrs or "max" in node.op.attrs:
        return None
    items: list[Dim | None] = []
    for item in found.items:
        raised = item if item is None or low is None else largest(item, low)
        items.append(raised if raised is None or high is None else smallest(raised, high))
    return known(found.shape, items, type_.dtype)


def _absolute(item: Dim) -> Dim | None:
    if at_least(item, 0):
        return item
    return -item if at_least(-item, 0) else None


def _sign(item: Dim) -> Dim | None:
    return proven_order(item, 0)


def _same(item: Dim) -> Dim:
    return item


def _add(a: Dim, b: Dim) -> Dim:
    return a + b


def _sub(a: Dim, b: Dim) -> Dim:
    return a - b


def _times(a: Dim, b: Dim) -> Dim:
    return a * b


RULES: dict[str, ValueRule] = {
    "Add": _fold(_add),
    "Sum": _fold(_add),
    "Sub": _fold(_sub),
    "Mul": _mul,
    "Div": _div,
    "Mod": _mod,
    "Pow": _fold(_pow),
    "Min": _fold(smallest),
    "Max": _fold(largest),
    "Clip": _clip,
    "Neg": _unary(lambda item: -item),
    "Abs": _unary(_absolute),
    "Sign": _unary(_sign),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _unary(_same)),
    "ReduceSum": _reduce(_add, 0),
    "ReduceProd": _reduce(_times, 1),
    "ReduceMax": _reduce(largest, None),
    "ReduceMin": _reduce(smallest, None),
}
