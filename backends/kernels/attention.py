"""``gecompiler.FlashAttention`` in numbers: tiled attention with an online softmax.

The loop order is FlashAttention-2's (Dao 2023, algorithm 1): blocks of queries outside, blocks
of keys inside. Grouped heads share their K and V block, which is never expanded. Blocks of
keys that the window, causality or a boolean mask leaves empty are not read at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.kernels.attention_check import AttentionSizes, check_attention
from gecompiler.backends.kernels.band import Band
from gecompiler.backends.kernels.online_softmax import OnlineSoftmax
from gecompiler.ir.constants import Array
from gecompiler.ir.flash_attention import FlashAttention


def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    sinks: Array | None = None,
    *,
    attrs: FlashAttention,
    block_q: int = 64,
    block_k: int = 64,
) -> Array:
    """The op that `gecompiler.ir.flash_attention` defines; returns (B, H, S, Dv) of Q's type.

    ``q`` (B, H, S, D), ``k`` (B or 1, G, T, D), ``v`` (B or 1, G, T, Dv), ``mask`` broadcastable
    to (B, H, S, T), ``sinks`` (H,). Sums are in float32, in float64 where an input is float64.
    With T = 0 the output is 0, as a product over no keys is. A row whose only key is its sink
    is 0 whatever ``masked_row`` says, since its softmax has a meaning. UsageError names the
    shape that does not fit.
    """
    sizes = check_attention(q, k, v, mask, sinks, attrs, block_q, block_k)
    out = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    if not out.size or not sizes.keys:
        return out
    band = Band.of(attrs, sizes.queries, sizes.keys)
    mask = None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        for q0 in range(0, sizes.queries, block_q):
            rows = slice(q0, min(q0 + block_q, sizes.queries))
            block = _query_block(q, k, v, mask, sinks, attrs, band, sizes, rows, block_k)
            out[:, :, rows] = block.reshape(out[:, :, rows].shape).astype(out.dtype)
    return out


def _query_block(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    sinks: Array | None,
    attrs: FlashAttention,
    band: Band,
    sizes: AttentionSizes,
    rows: slice,
    block_k: int,
) -> Array:
    """The output (B, G, R, rows, Dv) of one block of queries."""
    batch, groups, repeats = sizes.batch, sizes.groups, sizes.repeats
    count = rows.stop - rows.start
    queries = np.asarray(q[:, :, rows], sizes.dtype) * sizes.dtype.type(attrs.scale)
    queries = queries.reshape(batch, groups, repeats * count, q.shape[3])
    shape = (batch, groups, repeats, count)
    logits = None if sinks is None else sinks.reshape(groups, repeats, 1)
    softmax = OnlineSoftmax(shape, v.shape[3], sizes.dtype, logits)
    seen = np.zeros(shape, np.bool_)
    first, end = band.reach(rows.start, rows.stop)
    for k0 in range(first - first % block_k, end, block_k):
        keys = slice(k0, min(k0 + block_k, sizes.keys))
        bias, allowed = _mask_block(mask, rows, keys, sizes)
        inside = band.allowed(rows.start, rows.stop, keys.start, keys.stop)
        if inside is not None:
            allowed = inside if allowed is None else allowed & inside
        if allowed is not None and not allowed.any():
            continue
        scores = _scores(queries, k[:, :, keys], sizes, attrs.softcap).reshape(*shape, -1)
        if bias is not None:
            scores += bias
        seen |= True if allowed is None else allowed.any(axis=-1)
        softmax.add(scores, allowed, np.asarray(v[:, :, keys], sizes.dtype))
    out = softmax.finish()
    if softmax.empty.any():
        _fill_masked(out, softmax.empty, seen, attrs, v)
    return out


def _scores(queries: Array, keys: Array, sizes: AttentionSizes, softcap: float) -> Array:
    scores: Array = np.matmul(queries, np.asarray(keys, sizes.dtype).swapaxes(-1, -2))
    if softcap > 0:
        scores /= softcap
        np.tanh(scores, out=scores)
        scores *= softcap
    return scores


def _mask_block(
    mask: Array | None, rows: slice, keys: slice, sizes: AttentionSizes
) -> tuple[Array | None, NDArray[np.bool_] | None]:
    """The block's bias (for a float mask) or its allowed keys (for a boolean one)."""
    if mask is None:
        return None, None
    tile = mask[:, :, rows if mask.shape[2] > 1 else slice(None)]
    tile = tile[..., keys if mask.shape[3] > 1 else slice(None)]
    heads = (sizes.groups, sizes.repeats) if mask.shape[1] > 1 else (1, 1)
    tile = tile.reshape(tile.shape[0], *heads, *tile.shape[2:])
    if tile.dtype == np.bool_:
        return None, tile
    return np.asarray(tile, sizes.dtype), None


def _fill_masked(
    out: Array,
    empty: NDArray[np.bool_],
    seen: NDArray[np.bool_],
    attrs: FlashAttention,
    v: Array,
) -> None:
    """Puts what ``masked_row`` asks for into rows without a key; they hold NaN."""
    if attrs.masked_row == "zero":
        out[empty] = 0
    elif attrs.masked_row == "mean" and not seen.all():
        mean = np.mean(v, axis=2, dtype=out.dtype)[:, :, None, None]
        np.copyto(out, mean, where=(empty & ~seen)[..., None])
