"""Integer tensors that are affine in their own coordinates: what Range, Add and Mul build.

``tensor[i, j, ...] = constant + coefficients[0] * i + coefficients[1] * j + ...`` with
coefficients that may be symbolic. Exporters build the indices of masks that way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.canonical.reshape_forms import inserted_ones
from gecompiler.passes.op_params import perm
from gecompiler.passes.rewriting import Rewriter

_MAX_DEPTH = 24
_MAX_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Affine:
    """The tensor's shape, the coefficient of each coordinate (0 on axes of size 1), the rest."""

    shape: Shape
    coefficients: tuple[Dim, ...]
    constant: Dim


def affine(r: Rewriter, value: str, depth: int = 0) -> Affine | None:
    """The affine form of an integer tensor, None when it has none that can be seen."""
    shape, dtype = r.facts.shape(value), r.facts.dtype(value)
    if shape is None or dtype not in (DType.I32, DType.I64) or depth > _MAX_DEPTH:
        return None
    array = r.facts.array(value, _MAX_ELEMENTS)
    if array is not None:
        return affine_array(array)
    contents = r.facts.contents(value)
    if contents is not None and len(contents) == 1 and contents[0] is not None:
        return Affine(shape, (0,) * len(shape), contents[0])
    op = r.graph.producer(value)
    rule = _RULES.get(op.op_type) if op is not None and not op.domain else None
    return rule(r, op, shape, depth + 1) if rule is not None and op is not None else None


def affine_array(array: Array) -> Affine | None:
    """The affine form of numbers."""
    if array.size == 0:
        return None
    origin = array.reshape(-1)[0]
    rest, coefficients = np.full((), int(origin), dtype=np.int64), []
    for axis, size in enumerate(array.shape):
        step = 0
        if size > 1:
            step = int(np.take(array, 1, axis=axis).reshape(-1)[0]) - int(origin)
        coefficients.append(step)
        if abs(step) * size >= 2**62:
            return None  # no index: it would not stay within 64 bits
        line = np.arange(size, dtype=np.int64) * step
        rest = rest + line.reshape(size, *(1,) * (array.ndim - axis - 1))
    if not np.array_equal(rest, array):
        return None
    return Affine(array.shape, tuple(coefficients), int(origin))


def _range(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    start, step = r.facts.contents(op.inputs[0]), r.facts.contents(op.inputs[2])
    if not start or not step or start[0] is None or step[0] is None:
        return None
    return Affine(shape, (0 if shape == (1,) else step[0],), start[0])


def _passed(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    """Ops that keep values and coordinates (a Cast between integers)."""
    return affine(r, op.inputs[0], depth)


def _reshape(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    inner = affine(r, op.inputs[0], depth)
    if inner is None:
        return None
    if inner.shape == shape:
        return inner
    new = inserted_ones(inner.shape, shape)
    if new is not None:
        kept = iter(inner.coefficients)
        moved = tuple(0 if i in new else next(kept) for i in range(len(shape)))
        return Affine(shape, moved, inner.constant)
    gone = inserted_ones(shape, inner.shape)
    if gone is None:
        return None
    moved = tuple(c for i, c in enumerate(inner.coefficients) if i not in gone)
    return Affine(shape, moved, inner.constant)


def _expand(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    inner = affine(r, op.inputs[0], depth)
    return None if inner is None else _spread(inner, shape)


def _spread(inner: Affine, shape: Shape) -> Affine | None:
    """The tensor broadcast to ``shape``."""
    lead = len(shape) - len(inner.shape)
    for have, want in zip(inner.shape, shape[lead:], strict=True):
        if have not in (1, want):
            return None
    return Affine(shape, (*(0,) * lead, *inner.coefficients), inner.constant)


def _transpose(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    inner, order = affine(r, op.inputs[0], depth), perm(r, op)
    if inner is None or order is None:
        return None
    return Affine(shape, tuple(inner.coefficients[axis] for axis in order), inner.constant)


def _both(r: Rewriter, op: Op, shape: Shape, depth: int) -> tuple[Affine, Affine] | None:
    parts = [affine(r, value, depth) for value in op.inputs]
    spread = [None if part is None else _spread(part, shape) for part in parts]
    if len(spread) != 2 or spread[0] is None or spread[1] is None:
        return None
    return spread[0], spread[1]


def _add(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    both = _both(r, op, shape, depth)
    if both is None:
        return None
    sign = -1 if op.is_("Sub") else 1
    a, b = both
    sums = tuple(x + sign * y for x, y in zip(a.coefficients, b.coefficients, strict=True))
    return Affine(shape, sums, a.constant + sign * b.constant)


def _multiply(r: Rewriter, op: Op, shape: Shape, depth: int) -> Affine | None:
    both = _both(r, op, shape, depth)
    if both is None:
        return None
    a, b = both if not any(both[1].coefficients) else both[::-1]
    if any(b.coefficients):
        return None
    return Affine(shape, tuple(c * b.constant for c in a.coefficients), a.constant * b.constant)


_Rule = Callable[[Rewriter, Op, Shape, int], "Affine | None"]

_RULES: dict[str, _Rule] = {
    "Range": _range,
    "Identity": _passed,
    "Cast": _passed,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Flatten": _reshape,
    "Expand": _expand,
    "Transpose": _transpose,
    "Add": _add,
    "Sub": _add,
    "Mul": _multiply,
}
