"""Softmax-weighted sums over keys that arrive block by block.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), in the form of Dao,
"FlashAttention-2" (2023), algorithm 1: the sum and the output stay unnormalised until the end
and are rescaled whenever a block raises the running maximum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.kernels.tile_product import tile_product
from gecompiler.ir.constants import Array

_EXACT_INTEGERS = 2.0**24
"""Up to here float32 is off by at most a half."""


class OnlineSoftmax:
    """The running maximum, sum and output of a number of query rows.

    ``shape`` is (B, G, rows): the rows of one B and G share their values. ``sinks`` broadcasts
    to it and is the logit of an extra key whose value is 0. ``single``: see `tile_product`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        width: int,
        dtype: np.dtype[np.generic],
        sinks: Array | None,
        *,
        single: bool = False,
    ) -> None:
        self.single = single
        self.maximum: NDArray[np.float64] = np.full(shape, -np.inf, np.float64)
        self.total: Array = np.zeros(shape, dtype)
        self.output: Array = np.zeros((*shape, width), dtype)
        if sinks is not None:
            self.maximum[...] = sinks
            self.total[...] = self.maximum != -np.inf

    def add(
        self, rows: slice, scores: Array, allowed: NDArray[np.bool_] | None, values: Array
    ) -> None:
        """Takes in one block of keys for some of the rows.

        ``scores`` (B, G, rows, keys) is overwritten, ``allowed`` broadcasts to it, ``values`` is
        (B, G, keys, Dv). Scores may be wider than the sums: they are narrowed once the running
        maximum is taken off, when those that count have become small.
        """
        if allowed is not None:
            np.copyto(scores, -np.inf, where=~allowed)
        before, dtype = self.maximum[:, :, rows], self.total.dtype
        maximum = np.maximum(before, _pivots(scores.max(axis=-1), dtype))
        # A row without any key yet has the maximum -inf; subtracting it would make NaN.
        pivot = np.where(maximum == -np.inf, 0.0, maximum)
        scores -= pivot.astype(scores.dtype, copy=False)[..., None]
        weights: Array = scores.astype(dtype, copy=False)
        np.exp(weights, out=weights)
        shrink = np.exp(before - pivot).astype(dtype, copy=False)
        self.maximum[:, :, rows] = maximum
        total, output = self.total[:, :, rows], self.output[:, :, rows]
        total *= shrink
        total += weights.sum(axis=-1)
        if not (shrink == 1).all():
            output *= shrink[..., None]
        output += _weighted(weights, allowed, values, self.single)

    def finish(self) -> Array:
        """The output (B, G, rows, Dv). A row without any key is NaN."""
        self.output /= self.total[..., None]
        return self.output

    def log_sum_exp(self) -> Array:
        """The logarithm of the sum of exp(score) over a row's keys (B, G, rows); -inf of none."""
        found: Array = self.maximum + np.log(self.total)
        return found

    @property
    def empty(self) -> NDArray[np.bool_]:
        """The rows to which no key (and no sink) contributed: none, or all of score -inf."""
        found: NDArray[np.bool_] = self.total == 0
        return found


def _pivots(maxima: Array, dtype: np.dtype[np.generic]) -> NDArray[np.float64]:
    """What is taken off a row's scores: any number near their maximum will do.

    One that the type of the sums holds, so that narrow and wide scores of a row lose the same;
    a maximum that would be rounded by more than 1 itself, lest the exponential overflow.
    """
    wide = maxima.astype(np.float64, copy=False)
    if maxima.dtype == dtype:
        return wide
    return np.where(np.abs(wide) < _EXACT_INTEGERS, wide.astype(dtype), wide)


def _weighted(
    weights: Array, allowed: NDArray[np.bool_] | None, values: Array, single: bool
) -> Array:
    """``weights @ values``; keys that are not allowed add nothing, also where they are inf."""
    if allowed is None or np.isfinite(values).all():
        return tile_product(weights, values, single=single)
    finite = np.isfinite(values)
    out = tile_product(weights, np.where(finite, values, 0), single=single)
    keys = weights.shape[-1]
    for key in np.flatnonzero(~finite.all(axis=(0, 1, 3))):
        value = np.where(finite[:, :, key], 0, values[:, :, key])[:, :, None]
        column = allowed[..., key if allowed.shape[-1] == keys else 0, None]
        out += np.where(column & (value != 0), weights[..., key, None] * value, 0)
    return out
