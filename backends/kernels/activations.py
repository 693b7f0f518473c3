"""Activations, with a bias before and a product after, in numbers; `block_ops` defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from gecompiler.backends.execution import ort_session
from gecompiler.backends.execution.node_model import Call
from gecompiler.ir.block_ops import Activation, Gate
from gecompiler.ir.constants import Array
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType


def activation(x: Array, up: Array | None, bias: Array | None, spec: Activation) -> Array:
    """``act(x + bias)``, times ``up`` where the op is gated.

    ``x`` (..., D), ``bias`` (D,), ``up`` like X; without it a gated op halves X + bias.
    `block_ops` says how a gated op clamps and shifts.
    """
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    with np.errstate(all="ignore"):
        value = x.astype(wide)
        if bias is not None:
            value = value + bias.astype(wide)
        factor = None if up is None else up.astype(wide)
        if spec.gated and factor is None:
            value, factor = _halves(value, spec.gate)
        if factor is not None:
            limit = wide.type(spec.limit)
            if limit > 0:
                value, factor = np.minimum(value, limit), np.clip(factor, -limit, limit)
            factor = factor + wide.type(spec.shift) if spec.shift else factor
        out = _FUNCTIONS[spec.function](value, spec)
        return np.asarray((out if factor is None else out * factor).astype(x.dtype))


def _halves(value: Array, gate: Gate) -> tuple[Array, Array]:
    """The gate and what it gates."""
    half = value.shape[-1] // 2
    if gate in ("even", "odd"):
        halves = value[..., 0::2], value[..., 1::2]
    else:
        halves = value[..., :half], value[..., half:]
    return halves if gate in ("first", "even") else halves[::-1]


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow."""
    power = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1 / (1 + power), power / (1 + power))
    return found


def erf(x: Array) -> Array:
    """The error function: onnxruntime's in float32, libm's in float64."""
    if x.dtype == np.float64:
        found = np.frompyfunc(math.erf, 1, 1)(x)
        return np.asarray(found, np.float64)
    kind = TensorType(DType.F32, x.shape)
    op = Op("erf", "Erf", ("x",), ("y",))
    array = np.asarray(x)  # arithmetic on arrays of rank 0 gives numbers
    (out,) = ort_session.run(Call(op, {"": 13}, (array,), {}, (kind,), (kind,)))
    return np.asarray(out)


def _gelu(x: Array, spec: Activation) -> Array:
    half = x.dtype.type(0.5)
    if spec.approximate == "tanh":
        inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
        return np.asarray(half * x * (1 + np.tanh(inner)))
    return np.asarray(half * x * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))))


def _silu(x: Array, spec: Activation) -> Array:
    return np.asarray(x * sigmoid(x * x.dtype.type(spec.alpha)))


_FUNCTIONS: Mapping[str, Callable[[Array, Activation], Array]] = {
    "Gelu": _gelu,
    "Silu": _silu,
    "Relu": lambda x, spec: np.maximum(x, 0),
    "SquaredRelu": lambda x, spec: np.square(np.maximum(x, 0)),
    "Sigmoid": lambda x, spec: sigmoid(x),
    "Tanh": lambda x, spec: np.tanh(x),
}
