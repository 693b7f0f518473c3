"""Kernels of constant folding that move elements or make them by a rule; see folding_kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gecompiler.ir.constants import Array

Move = Callable[[Any], "Array | tuple[Array, ...] | None"]


def _axes(call: Any) -> tuple[int, ...] | None:
    given = call.input(1) if call.input(1) is not None else call.op.attr("axes")
    return None if given is None else tuple(int(a) for a in given)


def _reshape(call: Any) -> Array | None:
    x, target = call.input(0), [int(d) for d in call.input(1)]
    if not call.op.attr("allowzero", 0):
        target = [x.shape[i] if d == 0 and i < x.ndim else d for i, d in enumerate(target)]
    return np.asarray(x.reshape(target))


def _flatten(call: Any) -> Array:
    x, axis = call.input(0), int(call.op.attr("axis", 1))
    axis = axis + x.ndim if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return np.asarray(x.reshape(rows, int(np.prod(x.shape[axis:], dtype=np.int64))))


def _transpose(call: Any) -> Array:
    given = call.op.attr("perm")
    order = None if given is None else tuple(given)
    x: Array = call.input(0)
    return np.transpose(x, order)


def _squeeze(call: Any) -> Array:
    x: Array = call.input(0)
    return np.squeeze(x, axis=_axes(call))


def _unsqueeze(call: Any) -> Array | None:
    axes = _axes(call)
    return None if axes is None else np.expand_dims(call.input(0), axes)


def _concat(call: Any) -> Array:
    return np.concatenate(call.inputs, axis=int(call.op.attr("axis", 0)))


def _split(call: Any) -> tuple[Array, ...] | None:
    x, axis = call.input(0), int(call.op.attr("axis", 0))
    sizes = call.input(1) if call.input(1) is not None else call.op.attr("split")
    if sizes is None:
        size = -(-x.shape[axis] // len(call.op.outputs))
        cuts = [size * i for i in range(1, len(call.op.outputs))]
    else:
        cuts = [int(c) for c in np.cumsum(sizes)[:-1]]
    return tuple(np.split(x, cuts, axis=axis))


def _expand(call: Any) -> Array | None:
    x, target = call.input(0), tuple(int(d) for d in call.input(1))
    shape = np.broadcast_shapes(x.shape, target)
    return np.broadcast_to(x, shape).copy() if shape == call.sizes else None


def _tile(call: Any) -> Array | None:
    x, repeats = call.input(0), [int(d) for d in call.input(1)]
    shape = tuple(n * k for n, k in zip(x.shape, repeats, strict=True))
    return np.tile(x, repeats) if shape == call.sizes else None


def _range(call: Any) -> Array | None:
    """Integers only: a range of floats accumulates rounding in its own way in each runtime."""
    if not call.dtype.is_integer:
        return _float_range(call)
    start, limit, delta = (int(call.input(i).reshape(-1)[0]) for i in range(3))
    if delta == 0 or len(range(start, limit, delta)) != call.sizes[0]:
        return None
    return np.arange(start, limit, delta, dtype=call.dtype.numpy)


def _float_range(call: Any) -> Array | None:
    """Ranges over whole numbers below 2**24, which every way of computing gets right."""
    numbers = [float(call.input(i).reshape(-1)[0]) for i in range(3)]
    if any(n != int(n) or abs(n) >= 2**24 for n in numbers) or numbers[2] == 0:
        return None
    whole = range(*(int(n) for n in numbers))
    return np.array(whole, dtype=call.dtype.numpy) if len(whole) == call.sizes[0] else None


def _constant_of_shape(call: Any) -> Array | None:
    value, shape = call.op.attr("value"), tuple(int(d) for d in call.input(0))
    fill = np.zeros(1, np.float32) if value is None else value.array().reshape(-1)
    return np.full(shape, fill[0], dtype=fill.dtype) if shape == call.sizes else None


def _gather(call: Any) -> Array | None:
    x, index, axis = call.input(0), call.input(1), int(call.op.attr("axis", 0))
    if index.size and (index.min() < -x.shape[axis] or index.max() >= x.shape[axis]):
        return None
    axis = axis + x.ndim if axis < 0 else axis
    if (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]) != call.sizes:
        return None
    return np.asarray(np.take(x, index, axis=axis))


def _gather_elements(call: Any) -> Array | None:
    x, index, axis = call.input(0), call.input(1), int(call.op.attr("axis", 0))
    size = x.shape[axis]
    if index.size and (index.min() < -size or index.max() >= size):
        return None
    if any(i > n for d, (i, n) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis):
        return None
    grid = list(np.indices(index.shape, sparse=True))
    grid[axis] = np.where(index < 0, index + size, index)
    return np.asarray(x[tuple(grid)])


def _gather_nd(call: Any) -> Array | None:
    x, index = call.input(0), call.input(1)
    if call.op.attr("batch_dims", 0) or index.shape[-1] > x.ndim:
        return None
    sizes = np.array(x.shape[: index.shape[-1]])
    if index.size and not np.all((index >= -sizes) & (index < sizes)):
        return None
    if (*index.shape[:-1], *x.shape[index.shape[-1] :]) != call.sizes:
        return None
    return np.asarray(x[tuple(np.moveaxis(index, -1, 0))])


def _one_hot(call: Any) -> Array | None:
    index, depth, values = call.input(0), int(call.input(1).reshape(-1)[0]), call.input(2)
    axis, rank = int(call.op.attr("axis", -1)), index.ndim + 1
    if depth <= 0 or values.shape != (2,) or index.dtype.kind not in "iu":
        return None
    if not -rank <= axis < rank or math.prod((*index.shape, depth)) != math.prod(call.sizes):
        return None
    moved = np.where((index >= -depth) & (index < 0), index + depth, index)
    hit = np.expand_dims(moved, axis)
    at = np.arange(depth).reshape([depth if n == axis % rank else 1 for n in range(rank)])
    return np.asarray(np.where(hit == at, values[1], values[0]))


def _slice(call: Any) -> Array | None:
    if call.opset < 10:
        starts, stops, axes = (call.op.attr(n) for n in ("starts", "ends", "axes"))
        steps = None
    else:
        starts, stops, axes, steps = (call.input(i) for i in range(1, 5))
    x = call.input(0)
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    parts = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        if step == 0:
            return None
        # With a negative step, an end before the front cannot be written as Python's slice.
        last = None if step < 0 and int(stop) < -x.shape[axis] else int(stop)
        parts[int(axis)] = slice(int(start), last, int(step))
    return np.asarray(x[tuple(parts)])


def _trilu(call: Any) -> Array:
    k = 0 if call.input(1) is None else int(call.input(1).reshape(-1)[0])
    triangle = np.triu if call.op.attr("upper", 1) else np.tril
    found: Array = triangle(call.input(0), k)
    return found


KERNELS: Mapping[str, Move] = {
    "Identity": lambda call: np.asarray(call.input(0)),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Slice": _slice,
    "Trilu": _trilu,
    "Shape": lambda call: np.array(
        call.input(0).shape[call.op.attr("start", 0) : call.op.attr("end")], dtype=np.int64
    ),
    "Size": lambda call: np.array(call.input(0).size, dtype=np.int64),
}
"""Moving kernels by op type of ai.onnx."""
