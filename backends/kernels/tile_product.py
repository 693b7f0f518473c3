"""Matrix products of many rows with one small tile."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Array

_ONE_THREAD = 1 << 18
"""Multiply-adds up to which a BLAS keeps a product on the calling thread.

A tile's product takes microseconds: threads that wait for each other spin longer than they
compute, and for milliseconds where another process holds a core. OpenBLAS also has kernels
without packing for products of this size, which are faster here than those of large ones.
"""


def tile_product(rows: Array, tile: Array) -> Array:
    """``rows @ tile`` (B, G, M, N) of rows (B, G, M, K) and a tile (B or 1, G, K, N).

    ``rows`` is contiguous or a stretch of contiguous rows. Rows go through the product in
    chunks; each row's sum is over K in order whatever its neighbours.
    """
    if rows.shape[2] == 1:  # a BLAS has a routine of its own for vectors, with another order
        return np.ascontiguousarray(tile_product(np.repeat(rows, 2, axis=2), tile)[:, :, :1])
    if tile.shape[3] == 1:
        return np.ascontiguousarray(tile_product(rows, np.repeat(tile, 2, axis=3))[..., :1])
    count, depth = rows.shape[2:]
    width = tile.shape[3]
    chunk = min(64, max(8, _ONE_THREAD // max(1, depth * width)))
    tile = np.ascontiguousarray(tile)
    if count <= chunk:
        small: Array = np.matmul(rows, tile)
        return small
    shape = (*rows.shape[:2], count, width)
    out: Array = np.empty(shape, np.result_type(rows, tile))
    whole = count - count % chunk
    if count - whole == 1:
        whole -= chunk
    np.matmul(
        _chunks(rows[:, :, :whole], chunk), tile[:, :, None], out=_chunks(out[:, :, :whole], chunk)
    )
    if whole < count:
        np.matmul(rows[:, :, whole:], tile, out=out[:, :, whole:])
    return out


def rows_product(left: Array, right: Array) -> Array:
    """``left.T @ right`` (B, G, N, K) of left (B, G, M, N) and right (B, G, M, K), in chunks."""
    count, width, depth = left.shape[2], left.shape[3], right.shape[3]
    chunk = min(64, max(8, _ONE_THREAD // max(1, depth * width)))
    whole = count - count % chunk
    parts = np.matmul(
        _chunks(left[:, :, :whole], chunk).swapaxes(-1, -2), _chunks(right[:, :, :whole], chunk)
    )
    out: Array = parts.sum(axis=2)
    if whole < count:
        out += np.matmul(left[:, :, whole:].swapaxes(-1, -2), right[:, :, whole:])
    return out


def _chunks(array: Array, chunk: int) -> Array:
    """The rows in chunks: (B, G, M, K) to (B, G, M / chunk, chunk, K), a view."""
    found: Array = array.reshape(*array.shape[:2], -1, chunk, array.shape[3])
    return found
