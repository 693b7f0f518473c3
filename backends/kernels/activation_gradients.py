"""Gradients of activations and of those that gate, in numbers; `training_ops` defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gecompiler.backends.kernels.activations import activation, erf, sigmoid
from gecompiler.backends.kernels.gradients import wide_type
from gecompiler.ir.block_ops import Activation, Gate
from gecompiler.ir.constants import Array


def activation_grad(
    dy: Array, x: Array, up: Array | None, bias: Array | None, spec: Activation
) -> tuple[Array, Array | None]:
    """dX, and dup where ``up`` is given; shapes as for `activation`."""
    wide = wide_type(x)
    with np.errstate(all="ignore"):
        value, grad = x.astype(wide), dy.astype(wide)
        if bias is not None:
            value = value + bias.astype(wide)
        if not spec.gated:
            return (grad * _SLOPES[spec.function](value, spec)).astype(x.dtype), None
        parts = _parts(value, spec.gate) if up is None else None
        gate, factor = (value, up) if parts is None else (value[parts[0]], value[parts[1]])
        assert factor is not None
        dgate, dfactor = _gated(grad, gate, factor.astype(wide), spec)
        if parts is None:
            assert up is not None
            return dgate.astype(x.dtype), dfactor.astype(up.dtype)
        dx = np.empty_like(x)
        dx[parts[0]], dx[parts[1]] = dgate.astype(x.dtype), dfactor.astype(x.dtype)
        return dx, None


def _gated(grad: Array, gate: Array, factor: Array, spec: Activation) -> tuple[Array, Array]:
    """Of act(min(gate, limit)) * (clip(factor) + shift)."""
    low_gate, low_factor = gate, factor
    if spec.limit > 0:
        low_gate = np.minimum(gate, spec.limit)
        low_factor = np.clip(factor, -spec.limit, spec.limit)
    plain = Activation(spec.function, False, spec.approximate, spec.alpha)
    dgate = grad * (low_factor + spec.shift) * _SLOPES[spec.function](low_gate, plain)
    dfactor = grad * activation(low_gate, None, None, plain)
    if spec.limit > 0:
        dgate = np.where(gate <= spec.limit, dgate, 0)
        dfactor = np.where(np.abs(factor) <= spec.limit, dfactor, 0)
    return dgate, dfactor


def _parts(value: Array, gate: Gate) -> tuple[Any, Any]:
    """Where along the last axis the gate and what it gates lie."""
    half = value.shape[-1] // 2
    halves = (slice(None, half), slice(half, None))
    if gate in ("even", "odd"):
        halves = (slice(0, None, 2), slice(1, None, 2))
    first, second = halves if gate in ("first", "even") else halves[::-1]
    return (..., first), (..., second)


def _gelu(x: Array, spec: Activation) -> Array:
    kind = x.dtype.type
    if spec.approximate == "tanh":
        scale, cubic = kind(math.sqrt(2 / math.pi)), kind(0.044715)
        curve = np.tanh(scale * (x + cubic * x * x * x))
        inner = scale * (1 + 3 * cubic * x * x)
        return np.asarray(kind(0.5) * (1 + curve + x * (1 - curve * curve) * inner))
    density = np.exp(-x * x * kind(0.5)) * kind(1 / math.sqrt(2 * math.pi))
    return np.asarray(kind(0.5) * (1 + erf(x * kind(math.sqrt(0.5)))) + x * density)


def _silu(x: Array, spec: Activation) -> Array:
    alpha = x.dtype.type(spec.alpha)
    share = sigmoid(x * alpha)
    return np.asarray(share * (1 + alpha * x * (1 - share)))


def _sigmoid(x: Array, spec: Activation) -> Array:
    share = sigmoid(x)
    return np.asarray(share * (1 - share))


_SLOPES: Mapping[str, Callable[[Array, Activation], Array]] = {
    "Gelu": _gelu,
    "Silu": _silu,
    "Relu": lambda x, spec: (x > 0).astype(x.dtype),
    "SquaredRelu": lambda x, spec: 2 * np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Tanh": lambda x, spec: 1 - np.square(np.tanh(x)),
}
