"""RMSNorm, LayerNorm and both behind a residual sum, in numbers; `block_ops` defines them."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.block_ops import Norm
from gecompiler.ir.constants import Array
from gecompiler.ir.types import DType


def norm(
    x: Array,
    residual: Array | None,
    scale: Array | None,
    shift: Array | None,
    bias: Array | None,
    spec: Norm,
) -> tuple[Array, Array]:
    """The normalised X, and what was normalised: X itself or X + bias + residual.

    ``x`` and ``residual`` (..., D), ``bias`` (D,); ``scale`` and ``shift`` broadcast to the
    normalised axes.
    """
    axes = tuple(range(spec.axis % x.ndim, x.ndim))
    with np.errstate(all="ignore"):
        total = x if residual is None else _sum(x, bias, residual)
        normal = _in_stash(total, axes, spec)
        return _scaled(normal, scale, shift, spec).astype(spec.output.numpy), total


def _sum(x: Array, bias: Array | None, residual: Array) -> Array:
    wide = _wide(DType.from_numpy(x.dtype))
    total = x.astype(wide)
    if bias is not None:
        total = total + bias.astype(wide)
    return np.asarray((total + residual.astype(wide)).astype(x.dtype))


def _in_stash(x: Array, axes: tuple[int, ...], spec: Norm) -> Array:
    """The normalised X, rounded to the stash's type after each step; sums are wider."""
    kind, wide = spec.stash.numpy, _wide(spec.stash)

    def stashed(value: Array) -> Array:
        return value.astype(kind).astype(wide)

    value = stashed(x)
    if spec.centred:
        value = stashed(value - stashed(value.mean(axis=axes, keepdims=True)))
    square = stashed(stashed(value * value).mean(axis=axes, keepdims=True))
    root = stashed(np.sqrt(stashed(square + stashed(np.asarray(spec.epsilon, wide)))))
    return stashed(value * stashed(1 / root))


def _scaled(value: Array, scale: Array | None, shift: Array | None, spec: Norm) -> Array:
    """The second stage, rounded to its type after each step."""
    kind, wide = spec.scale_type.numpy, _wide(spec.scale_type)

    def rounded(array: Array) -> Array:
        return array.astype(kind).astype(wide)

    value = rounded(value)
    if scale is not None:
        factor = rounded(scale)
        value = rounded(value * (rounded(factor + spec.offset) if spec.offset else factor))
    return value if shift is None else rounded(value + rounded(shift))


def _wide(dtype: DType) -> np.dtype[np.generic]:
    """The type to compute in: float32, or float64 for float64."""
    return np.dtype(np.float64 if dtype is DType.F64 else np.float32)
