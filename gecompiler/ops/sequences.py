"""The attentions that one call is made of: one, or a sequence each for layout TND."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError


@dataclass(frozen=True, slots=True)
class Piece:
    """One attention of a call: all of it, or one sequence of layout TND; arrays (B, N, S, D)."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    block_mask: Array | None
    rows: slice
    """Its queries along the output's sequence."""
    keys: slice
    mask_place: tuple[slice, ...]
    """Where its mask lies in the call's, of four dims."""


def sequences(
    views: tuple[Array, Array, Array],
    mask: Array | None,
    q_lengths: Any,
    k_lengths: Any,
    where: str,
) -> tuple[Piece, ...]:
    """The sequences of layout TND, each by itself.

    ``views`` (1, N, T, D), ``mask`` broadcast to (sequences, N, longest S, longest T), lengths
    cumulative. UsageError names what does not fit.
    """
    q, k, v = views
    q_ends = _lengths(q_lengths, q.shape[2], "actual_seq_qlen", "query", where)
    k_ends = _lengths(k_lengths, k.shape[2], "actual_seq_kvlen", "key", where)
    if len(q_ends) != len(k_ends):
        _refuse(
            f"{len(q_ends)} sequences in actual_seq_qlen, {len(k_ends)} in actual_seq_kvlen", where
        )
    q_spans = [slice(a, b) for a, b in zip([0, *q_ends], q_ends, strict=False)]
    k_spans = [slice(a, b) for a, b in zip([0, *k_ends], k_ends, strict=False)]
    places = _mask_places(mask, q_spans, k_spans, where)
    return tuple(
        Piece(
            q[:, :, rows],
            k[:, :, keys],
            v[:, :, keys],
            None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)[place],
            None,
            rows,
            keys,
            place,
        )
        for rows, keys, place in zip(q_spans, k_spans, places, strict=True)
    )


def _mask_places(
    mask: Array | None, q_spans: list[slice], k_spans: list[slice], where: str
) -> list[tuple[slice, ...]]:
    """Where each sequence's mask lies in one of (1 or sequences, 1 or N, longest S, longest T)."""
    whole = slice(None)
    if mask is None:
        return [(whole,) * 4] * len(q_spans)
    counts = [[s.stop - s.start for s in spans] for spans in (q_spans, k_spans)]
    longest = [max(c, default=0) for c in counts]
    shape = (1,) * (4 - mask.ndim) + mask.shape
    fits = len(shape) == 4 and shape[0] in (1, len(q_spans))
    if not fits or any(n not in (1, most) for n, most in zip(shape[2:], longest, strict=True)):
        _refuse(
            f"mask {mask.shape} does not broadcast to (sequences, heads, longest query, longest "
            f"key) = {(len(q_spans), 'N', *longest)}",
            where,
        )
    return [
        (
            slice(i, i + 1) if shape[0] > 1 else whole,
            whole,
            slice(0, counts[0][i]) if shape[2] > 1 else whole,
            slice(0, counts[1][i]) if shape[3] > 1 else whole,
        )
        for i in range(len(q_spans))
    ]


def _lengths(ends: Any, total: int, name: str, array: str, where: str) -> list[int]:
    """Cumulative lengths, with or without a leading 0."""
    if ends is None:
        _refuse(f"layout TND needs {name}", where, f"cumulative lengths, the last {total}")
    found = np.asarray(ends)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        _refuse(f"{name} must be a list of integers, found {ends!r}", where)
    values = [int(n) for n in found]
    if values[0] < 0 or any(b < a for a, b in pairwise(values)):
        _refuse(f"{name} must not fall, found {values}", where, "lengths are to be cumulative")
    if values[-1] != total:
        _refuse(f"{name} ends at {values[-1]}, but {array} has {total} tokens", where)
    return values


def _refuse(message: str, where: str, hint: str = "") -> NoReturn:
    raise UsageError(message, where=where, hint=hint)
