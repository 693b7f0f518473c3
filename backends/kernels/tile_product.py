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


_QUANTUM = 16
"""Rows go through a BLAS in multiples of this: for fewer it has routines that sum in another
order, so that a row's product would depend on how many others there are."""

FEW_QUERIES = 4
"""Up to so many queries each row is multiplied by itself: packing the tile would cost more."""


def tile_product(rows: Array, tile: Array, *, single: bool = False) -> Array:
    """``rows @ tile`` (B, G, M, N) of rows (B, G, M, K) and a tile (B or 1, G, K, N).

    Rows go through the product in chunks, or one by one (``single``); either way a row's
    product does not depend on its neighbours, nor on how many there are.
    """
    count, depth = rows.shape[2:]
    width = tile.shape[3]
    if single:
        out: Array = np.matmul(rows[:, :, :, None], tile[:, :, None])
        return out[:, :, :, 0]
    if width == 1:  # another routine again
        return np.ascontiguousarray(tile_product(rows, np.repeat(tile, 2, axis=3))[..., :1])
    chunk = _ONE_THREAD // max(1, depth * width) // _QUANTUM * _QUANTUM
    chunk = min(64, max(_QUANTUM, chunk))
    tile = np.ascontiguousarray(tile)
    out = np.empty((*rows.shape[:2], count, width), np.result_type(rows, tile))
    whole = count - count % chunk
    if whole:
        parts = _chunks(rows[:, :, :whole], chunk)
        np.matmul(parts, tile[:, :, None], out=_chunks(out[:, :, :whole], chunk))
    if whole < count:
        rest = count - whole
        padded = np.zeros((*rows.shape[:2], -(-rest // _QUANTUM) * _QUANTUM, depth), rows.dtype)
        padded[:, :, :rest] = rows[:, :, whole:]
        out[:, :, whole:] = np.matmul(padded, tile)[:, :, :rest]
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
