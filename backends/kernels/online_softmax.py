"""Softmax-weighted sums over keys that arrive block by block.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), in the form of Dao,
"FlashAttention-2" (2023), algorithm 1: the sum and the output stay unnormalised until the end
and are rescaled whenever a block raises the running maximum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.constants import Array


class OnlineSoftmax:
    """The running maximum, sum and output of one block of queries.

    ``sinks`` broadcasts to ``rows`` and is the logit of an extra key whose value is 0. Scores
    have shape (*rows, keys); values (*batch, keys, Dv), where the dims of ``rows`` beyond
    ``batch`` share the values (grouped heads).
    """

    def __init__(
        self, rows: tuple[int, ...], width: int, dtype: np.dtype[np.generic], sinks: Array | None
    ) -> None:
        self.maximum: Array = np.full(rows, -np.inf, dtype)
        self.total: Array = np.zeros(rows, dtype)
        self.output: Array = np.zeros((*rows, width), dtype)
        if sinks is not None:
            self.maximum[...] = sinks
            self.total[...] = self.maximum != -np.inf

    def add(self, scores: Array, allowed: NDArray[np.bool_] | None, values: Array) -> None:
        """Takes in one block of keys; ``scores`` is overwritten."""
        if allowed is not None:
            np.copyto(scores, -np.inf, where=~allowed)
        maximum = np.maximum(self.maximum, scores.max(axis=-1))
        # A row without any key yet has the maximum -inf; subtracting it would make NaN.
        pivot = np.where(maximum == -np.inf, 0, maximum)
        scores -= pivot[..., None]
        np.exp(scores, out=scores)
        shrink = np.exp(self.maximum - pivot)
        self.maximum = maximum
        self.total = self.total * shrink + scores.sum(axis=-1)
        self.output *= shrink[..., None]
        self.output += _weighted(scores, allowed, values)

    def finish(self) -> Array:
        """The output (*rows, Dv). A row without any key is NaN."""
        out: Array = self.output / self.total[..., None]
        return out

    @property
    def empty(self) -> NDArray[np.bool_]:
        """The rows to which no key (and no sink) contributed: none, or all of score -inf."""
        found: NDArray[np.bool_] = self.total == 0
        return found


def _weighted(weights: Array, allowed: NDArray[np.bool_] | None, values: Array) -> Array:
    """``weights @ values``; keys that are not allowed add nothing, also where they are inf."""
    rows, keys = weights.shape[:-1], weights.shape[-1]
    if allowed is None or np.isfinite(values).all():
        return _grouped_matmul(weights, values).reshape(*rows, values.shape[-1])
    finite = np.isfinite(values)
    out = _grouped_matmul(weights, np.where(finite, values, 0)).reshape(*rows, values.shape[-1])
    extra_dims = len(rows) - (values.ndim - 2)
    for key in np.flatnonzero(~finite.all(axis=(*range(values.ndim - 2), -1))):
        value = np.where(finite[..., key, :], 0, values[..., key, :])
        value = value.reshape(*value.shape[:-1], *(1,) * extra_dims, value.shape[-1])
        column = allowed[..., key if allowed.shape[-1] == keys else 0, None]
        out += np.where(column & (value != 0), weights[..., key, None] * value, 0)
    return out


def _grouped_matmul(weights: Array, values: Array) -> Array:
    batch = weights.shape[: values.ndim - 2]
    flat = weights.reshape(*batch, -1, weights.shape[-1])
    product: Array = np.matmul(flat, values)
    return product
