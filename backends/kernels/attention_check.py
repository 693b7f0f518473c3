"""What the arguments of attention must look like, and the sizes read off them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.types import DType

WHERE = "FlashAttention"


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """B, G (KV heads), R (query heads a KV head), S, T, and the type sums are made in."""

    batch: int
    groups: int
    repeats: int
    queries: int
    keys: int
    dtype: np.dtype[np.generic]


def check_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    sinks: Array | None,
    attrs: FlashAttention,
    block_q: int,
    block_k: int,
) -> AttentionSizes:
    """The sizes of the problem; UsageError names the argument that does not fit."""
    if block_q < 1 or block_k < 1:
        _refuse(f"block sizes must be at least 1, found {block_q} and {block_k}")
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim != 4:
            _refuse(f"{name} must be 4D (batch, heads, length, width), found {array.shape}")
        if not _is_float(array):
            _refuse(f"{name} must be of a float type, found {array.dtype}")
    batch, heads, queries, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if heads < 1 or groups < 1 or heads % groups:
        _refuse(f"{heads} query heads are no positive multiple of {groups} KV heads")
    if (heads, groups) != (attrs.q_heads, attrs.kv_heads):
        _refuse(
            f"expected {attrs.q_heads} query and {attrs.kv_heads} KV heads, "
            f"found {heads} and {groups}"
        )
    batches = k.shape[0] in (1, batch) and v.shape[0] in (1, batch)
    if k.shape[3] != width or k.shape[1:3] != v.shape[1:3] or not batches:
        _refuse(f"query {q.shape}, key {k.shape} and value {v.shape} do not fit together")
    _check_mask(mask, (batch, heads, queries, keys))
    if sinks is not None and sinks.shape != (heads,):
        _refuse(f"sinks must be one per query head, ({heads},), found {sinks.shape}")
    wide = any(a is not None and a.dtype == np.float64 for a in (q, k, v))
    dtype: np.dtype[np.generic] = np.dtype(np.float64 if wide else np.float32)
    return AttentionSizes(batch, groups, heads // groups, queries, keys, dtype)


def _check_mask(mask: Array | None, full: tuple[int, int, int, int]) -> None:
    if mask is None:
        return
    if mask.dtype != np.bool_ and not _is_float(mask):
        _refuse(
            f"mask must be boolean (True: may attend) or float (added), found {mask.dtype}",
            hint="cast an integer mask of 0 and 1 to bool",
        )
    aligned = full[4 - mask.ndim :] if mask.ndim <= 4 else ()
    fits = mask.ndim <= 4 and all(m in (1, f) for m, f in zip(mask.shape, aligned, strict=True))
    if not fits:
        _refuse(f"mask {mask.shape} does not broadcast to (batch, heads, S, T) = {full}")


def _is_float(array: Array) -> bool:
    try:
        return DType.from_numpy(array.dtype).is_float
    except ValueError:
        return False


def _refuse(message: str, hint: str = "") -> None:
    raise UsageError(message, where=WHERE, hint=hint)
