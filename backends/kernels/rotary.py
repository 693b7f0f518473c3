"""RotaryEmbedding in numbers; `block_ops` defines it."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.block_ops import Rotary
from gecompiler.ir.constants import Array


def rotary_embedding(x: Array, cos: Array, sin: Array, spec: Rotary) -> Array:
    """X (..., D) with ``spec.dim`` of its lanes rotated.

    The tables broadcast to (..., dim), or to (..., dim/2) with one number for a pair.
    """
    wide = np.float64 if x.dtype == np.float64 else np.float32
    first, second = _pairs(spec)
    reads = (first, second) if spec.style == "half" else (2 * first, 2 * first + 1)
    if spec.style == "interleaved":
        first, second = reads
    a, b = (x[..., spec.start + lanes].astype(wide) for lanes in reads)
    with np.errstate(all="ignore"):
        cos_a, cos_b, sin_a, sin_b = (
            _columns(table.astype(wide), lanes, spec.dim)
            for table in (cos, sin)
            for lanes in (first, second)
        )
        out = x.copy()
        out[..., spec.start + first] = (a * cos_a - b * sin_a).astype(x.dtype)
        out[..., spec.start + second] = (b * cos_b + a * sin_b).astype(x.dtype)
    return out


def _pairs(spec: Rotary) -> tuple[np.ndarray, np.ndarray]:
    """The lanes of the first and of the second half."""
    half = np.arange(spec.dim // 2)
    return half, half + spec.dim // 2


def _columns(table: Array, lanes: np.ndarray, dim: int) -> Array:
    """The table's columns for some lanes; a table of half the width has one column a pair."""
    found: Array = table[..., lanes] if table.shape[-1] == dim else table
    return found
