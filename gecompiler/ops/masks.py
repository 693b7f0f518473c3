"""Masks as callers give them, as the kernel takes them: boolean with True to keep, or added."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType

_PART = 1 << 24
"""Elements looked at together."""


def kept(attn_mask: Array | None, atten_mask: Array | None, where: str) -> Array | None:
    """The one mask of the two that is given, in the kernel's polarity.

    ``attn_mask`` is ONNX's: boolean with True where a key may be attended, or float and added.
    ``atten_mask`` is Ascend's: boolean (or 0 and 1 as 8-bit integers) with True where a key is
    masked out.
    """
    if attn_mask is not None and atten_mask is not None:
        raise UsageError(
            "attn_mask and atten_mask are both given",
            where=where,
            hint="attn_mask keeps where True (ONNX), atten_mask masks out where True (Ascend); "
            "give one of them",
        )
    if attn_mask is not None:
        return _onnx(np.asanyarray(attn_mask), where)
    return None if atten_mask is None else _ascend(np.asanyarray(atten_mask), where)


def _onnx(mask: Array, where: str) -> Array:
    if mask.dtype == np.bool_:
        return mask
    if not _is_float(mask):
        raise UsageError(
            f"attn_mask must be boolean or float, found {mask.dtype}",
            where=where,
            hint="attn_mask.astype(bool) keeps the keys where it is not 0",
        )
    if _zeros_and_ones(mask):
        raise UsageError(
            "attn_mask is float and holds only 0 and 1; added to the scores, as a float mask is, "
            "it would mask nothing",
            where=where,
            hint="attn_mask.astype(bool) keeps the keys where it is 1",
        )
    return mask


def _ascend(mask: Array, where: str) -> Array:
    if mask.dtype in (np.uint8, np.int8) and not (mask > 1).any() and not (mask < 0).any():
        mask = mask != 0
    if mask.dtype != np.bool_:
        raise UsageError(
            f"atten_mask must be boolean, True where a key is masked out; found {mask.dtype}",
            where=where,
            hint="atten_mask.astype(bool); a mask that is added to the scores is an attn_mask",
        )
    return np.asarray(~mask)


def _is_float(array: Array) -> bool:
    try:
        return DType.from_numpy(array.dtype).is_float
    except ValueError:
        return False


def _zeros_and_ones(mask: Array) -> bool:
    """Whether the mask holds 1 and besides that 0 at most."""
    if not mask.size:
        return False
    rows = mask.reshape(mask.shape[0], -1) if mask.ndim > 1 else mask.reshape(1, -1)
    step, found = max(1, _PART // max(1, rows.shape[1])), False
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        ones = part == 1
        if not (ones | (part == 0)).all():
            return False
        found = found or bool(ones.any())
    return found
