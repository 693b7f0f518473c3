"""Gradients of norms, softmax, rotary embedding, picks and cuts, in numbers.

`training_ops` defines them. Arrays are as for the ops themselves; sums are in float32, in
float64 for float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecompiler.ir.block_ops import Rotary
from gecompiler.ir.constants import Array


def wide_type(array: Array) -> np.dtype[np.generic]:
    """The type to compute in: float32, or float64 for float64."""
    return np.dtype(np.float64 if array.dtype == np.float64 else np.float32)


def norm_grad(
    dy: Array,
    x: Array,
    scale: Array | None,
    *,
    centred: bool,
    axis: int,
    epsilon: float,
    offset: float,
) -> tuple[Array, Array, Array]:
    """Gives dX, dscale and dshift (the normalised axes) of a norm over ``axis`` and on."""
    wide = wide_type(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    rows = tuple(range(axes[0]))
    value, grad = x.astype(wide), dy.astype(wide)
    with np.errstate(all="ignore"):
        if centred:
            value = value - value.mean(axis=axes, keepdims=True)
        square = (value * value).mean(axis=axes, keepdims=True)
        rate = 1 / np.sqrt(square + wide.type(epsilon))
        normal = value * rate
        inner = grad if scale is None else grad * (scale.astype(wide) + wide.type(offset))
        along = (inner * normal).mean(axis=axes, keepdims=True)
        dx = inner - normal * along
        if centred:
            dx = dx - inner.mean(axis=axes, keepdims=True)
        dscale = (grad * normal).sum(axis=rows)
    kind = dy.dtype if scale is None else scale.dtype
    dshift = grad.sum(axis=rows)
    return (dx * rate).astype(x.dtype), dscale.astype(kind), dshift.astype(kind)


def softmax_grad(dy: Array, y: Array, axis: int, *, log: bool) -> Array:
    """The dX of (log-)softmax along ``axis``, by its output."""
    wide = wide_type(y)
    grad, value = dy.astype(wide), y.astype(wide)
    if log:
        dx = grad - np.exp(value) * grad.sum(axis=axis, keepdims=True)
    else:
        dx = value * (grad - (grad * value).sum(axis=axis, keepdims=True))
    return np.asarray(dx.astype(dy.dtype))


def rotary_grad(dy: Array, cos: Array, sin: Array, spec: Rotary) -> Array:
    """The dX of a RotaryEmbedding: the rotation transposed."""
    wide = wide_type(dy)
    first = np.arange(spec.dim // 2)
    second = first + spec.dim // 2
    reads = (first, second) if spec.style == "half" else (2 * first, 2 * first + 1)
    if spec.style == "interleaved":
        first, second = reads
    a, b = (dy[..., spec.start + lanes].astype(wide) for lanes in (first, second))
    tables = [
        table[..., lanes].astype(wide) if table.shape[-1] == spec.dim else table.astype(wide)
        for table in (cos, sin)
        for lanes in (first, second)
    ]
    cos_a, cos_b, sin_a, sin_b = tables
    out = dy.copy()
    out[..., spec.start + reads[0]] = (a * cos_a + b * sin_b).astype(dy.dtype)
    out[..., spec.start + reads[1]] = (b * cos_b - a * sin_a).astype(dy.dtype)
    return out


def gather_grad(dy: Array, indices: Array, axis: int, shape: Sequence[int]) -> Array:
    """Zeros of ``shape`` with ``dy`` added where Gather took it from."""
    out = np.zeros(tuple(shape), wide_type(dy))
    count = indices.ndim
    rows = np.moveaxis(dy, range(axis, axis + count), range(count)).astype(out.dtype)
    np.add.at(np.moveaxis(out, axis, 0), indices, rows)
    return out.astype(dy.dtype)


def gather_elements_grad(dy: Array, indices: Array, axis: int, shape: Sequence[int]) -> Array:
    """The same of GatherElements."""
    out = np.zeros(tuple(shape), wide_type(dy))
    where: list[Array] = list(np.indices(indices.shape, sparse=True))
    where[axis] = indices
    np.add.at(out, tuple(where), dy.astype(out.dtype))
    return out.astype(dy.dtype)


def gather_nd_grad(dy: Array, indices: Array, batch: int, shape: Sequence[int]) -> Array:
    """The same of GatherND."""
    out = np.zeros(tuple(shape), wide_type(dy))
    lead = np.indices(indices.shape[:-1], sparse=True)[:batch]
    where = (*lead, *np.moveaxis(indices, -1, 0))
    np.add.at(out, where, dy.astype(out.dtype))
    return out.astype(dy.dtype)


def slice_grad(
    dy: Array, shape: Sequence[int], starts: Sequence[int], steps: Sequence[int]
) -> Array:
    """Zeros of ``shape`` with ``dy`` where it was cut out."""
    out = np.zeros(tuple(shape), dy.dtype)
    where = tuple(
        start + step * np.arange(count)
        for start, step, count in zip(starts, steps, dy.shape, strict=True)
    )
    if dy.size:
        out[np.ix_(*where)] = dy
    return out
