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
    cumulative, with or without a leading 0. UsageError names what does not fit.
    """
    q, k, v = views
    q_ends = cumulative(q_lengths, q.shape[2], "actual_seq_qlen", "query", where)
    k_ends = cumulative(k_lengths, k.shape[2], "actual_seq_kvlen", "key", where)
    q_ends, k_ends = _without_starts(q_ends, k_ends, mask)
    if len(q_ends) != len(k_ends):
        _refuse(
            f"{len(q_ends)} sequences in actual_seq_qlen, {len(k_ends)} in actual_seq_kvlen", where
        )
    q_spans = [slice(a, b) for a, b in zip([0, *q_ends], q_ends, strict=False)]
    k_spans = [slice(a, b) for a, b in zip([0, *k_ends], k_ends, strict=False)]
    counts = [[s.stop - s.start for s in spans] for spans in (q_spans, k_spans)]
    places = mask_places(mask, q.shape[1], counts[0], counts[1], where)
    return tuple(
        Piece(
            q[:, :, rows],
            k[:, :, keys],
            v[:, :, keys],
            None if mask is None else four(mask)[place],
            None,
            rows,
            keys,
            place,
        )
        for rows, keys, place in zip(q_spans, k_spans, places, strict=True)
    )


def four(mask: Array) -> Array:
    """The mask with all four dims."""
    found: Array = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return found


def mask_places(
    mask: Array | None, heads: int, q_counts: list[int], k_counts: list[int], where: str
) -> list[tuple[slice, ...]]:
    """Where the mask of each sequence, of so many queries and keys, lies in that of all."""
    whole = slice(None)
    if mask is None:
        return [(whole,) * 4] * len(q_counts)
    full = (len(q_counts), heads, max(q_counts, default=0), max(k_counts, default=0))
    shape = (1,) * (4 - mask.ndim) + mask.shape
    if len(shape) != 4 or any(n not in (1, most) for n, most in zip(shape, full, strict=True)):
        _refuse(
            f"mask {mask.shape} does not broadcast to (sequences, heads, longest query, longest "
            f"key) = {full}",
            where,
        )
    return [
        (
            slice(i, i + 1) if shape[0] > 1 else whole,
            whole,
            slice(0, queries) if shape[2] > 1 else whole,
            slice(0, keys) if shape[3] > 1 else whole,
        )
        for i, (queries, keys) in enumerate(zip(q_counts, k_counts, strict=True))
    ]


def cumulative(ends: Any, total: int, name: str, array: str, where: str) -> list[int]:
    """Cumulative lengths as given; UsageError where they are not those of ``total`` tokens."""
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


def without_start(ends: list[int], count: int | None) -> list[int]:
    """Cumulative lengths without a leading 0, unless it ends the first of ``count`` sequences."""
    starts = ends[0] == 0 and len(ends) > 1 and len(ends) != count
    return ends[1:] if starts else ends


def _without_starts(
    q_ends: list[int], k_ends: list[int], mask: Array | None
) -> tuple[list[int], list[int]]:
    """The same of both. A 0 in front of one alone begins it if the other then is as long."""
    count = mask.shape[0] if mask is not None and mask.ndim == 4 and mask.shape[0] > 1 else None
    if len(q_ends) == len(k_ends):
        if q_ends[0] == k_ends[0] == 0:
            return without_start(q_ends, count), without_start(k_ends, count)
        return q_ends, k_ends
    if len(q_ends) == len(k_ends) + 1:
        return without_start(q_ends, None), k_ends
    return q_ends, without_start(k_ends, None) if len(k_ends) == len(q_ends) + 1 else k_ends


def _refuse(message: str, where: str, hint: str = "") -> NoReturn:
    raise UsageError(message, where=where, hint=hint)
