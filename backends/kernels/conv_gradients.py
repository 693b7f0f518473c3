"""Gradients of a convolution, in numbers: a product for each place of the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from gecompiler.backends.kernels.gradients import wide_type
from gecompiler.ir.constants import Array


def conv_grad_input(
    dy: Array,
    w: Array,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int,
) -> Array:
    """Gives dX (N, C, *in) of dY (N, M, *out) and W (M, C / group, *kernel)."""
    wide = wide_type(dy)
    padded = np.zeros(_padded(shape, pads), wide)
    grad = _grouped(dy.astype(wide), group)
    weight = w.astype(wide).reshape(group, -1, *w.shape[1:])
    for at, window in _windows(w.shape[2:], dy.shape[2:], strides, dilations):
        part = np.einsum("ngm...,gmc->ngc...", grad, _at(weight, at))
        padded[(slice(None), slice(None), *window)] += part.reshape(
            dy.shape[0], shape[1], *dy.shape[2:]
        )
    return padded[_inside(shape, pads)].astype(dy.dtype)


def conv_grad_weight(
    dy: Array,
    x: Array,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int,
) -> Array:
    """Gives dW (M, C / group, *kernel) of dY (N, M, *out) and X (N, C, *in)."""
    wide = wide_type(dy)
    padded = np.zeros(_padded(x.shape, pads), wide)
    padded[_inside(x.shape, pads)] = x
    grad = _grouped(dy.astype(wide), group).reshape(dy.shape[0], group, dy.shape[1] // group, -1)
    out = np.zeros((group, dy.shape[1] // group, *shape[1:]), wide)
    for at, window in _windows(shape[2:], dy.shape[2:], strides, dilations):
        part = padded[(slice(None), slice(None), *window)]
        part = part.reshape(x.shape[0], group, x.shape[1] // group, -1)
        out[_last(at)] = np.einsum("ngmp,ngcp->gmc", grad, part)
    return out.reshape(tuple(shape)).astype(dy.dtype)


def _last(at: tuple[int, ...]) -> Any:
    """The index of a place of the kernel, which has the last axes."""
    return (..., *at)


def _at(weight: Array, at: tuple[int, ...]) -> Array:
    found: Array = weight[_last(at)]
    return found


def _grouped(x: Array, group: int) -> Array:
    return x.reshape(x.shape[0], group, x.shape[1] // group, *x.shape[2:])


def _padded(shape: Sequence[int], pads: Sequence[int]) -> tuple[int, ...]:
    count = len(shape) - 2
    sizes = (n + pads[i] + pads[i + count] for i, n in enumerate(shape[2:]))
    return (shape[0], shape[1], *sizes)


def _inside(shape: Sequence[int], pads: Sequence[int]) -> tuple[slice, ...]:
    inner = (slice(pads[i], pads[i] + n) for i, n in enumerate(shape[2:]))
    return (slice(None), slice(None), *inner)


def _windows(
    kernel: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each place of the kernel, and the pixels of the padded input that it meets."""
    for at in product(*map(range, kernel)):
        yield (
            at,
            tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(at, dilations, out, strides, strict=True)
            ),
        )
