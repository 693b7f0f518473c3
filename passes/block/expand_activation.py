"""Activations as ai.onnx's, or written out, with the bias before and the product after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from gecompiler.ir.block_ops import Activation
from gecompiler.ir.dims import floordiv
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.attention.builder import Builder


def expand_activation(build: Builder, op: Op, primitives: bool) -> tuple[str, ...]:
    """``act(x + bias) * up``, clamped and shifted where it says so."""
    spec = Activation.of(op)
    value, up = op.inputs[0], op.input(1) if spec.gated else ""
    bias = op.input(2 if spec.gated else 1)
    if bias:
        value = build.binary("Add", value, bias)
    if spec.gated and not up:
        halves = (_lanes if spec.gate in ("even", "odd") else _halves)(build, value)
        value, up = halves if spec.gate in ("first", "even") else halves[::-1]
    if up and spec.limit > 0:
        value = _clamped(build, "Min", value, spec.limit)
        up = _clamped(build, "Max", _clamped(build, "Min", up, spec.limit), -spec.limit)
    if up and spec.shift:
        up = _clamped(build, "Add", up, spec.shift)
    value = _FUNCTIONS[spec.function](build, value, spec, primitives)
    return (build.binary("Mul", value, up) if up else value,)


def _halves(build: Builder, value: str) -> tuple[str, str]:
    """Both halves along the last axis."""
    shape = build.shape(value)
    kind = TensorType(build.dtype(value), (*shape[:-1], floordiv(shape[-1], 2)))
    attrs = {"axis": len(shape) - 1, **({"num_outputs": 2} if build.opset >= 18 else {})}
    first = build.graph.emit(
        "Split",
        (value,),
        attrs=attrs,
        info=build.info,
        stem=f"{build.scope}Split",
        outputs=2,
        types=(kind, kind),
    )
    maker = build.graph.producer(first)
    assert maker is not None
    return maker.outputs[0], maker.outputs[1]


def _lanes(build: Builder, value: str) -> tuple[str, str]:
    """The even lanes and the odd ones, in pairs first so that no number of lanes is needed."""
    shape, kind = build.shape(value), build.dtype(value)
    half = floordiv(shape[-1], 2)
    target = build.ints((*(0,) * (len(shape) - 1), -1, 2))
    pairs = build.emit("Reshape", (value, target), kind, (*shape[:-1], half, 2))
    even, odd = (build.entry(pairs, len(shape), n) for n in (0, 1))
    return even, odd


def _clamped(build: Builder, op_type: str, value: str, number: float) -> str:
    """``Min``, ``Max`` or ``Add`` with a number."""
    found = build.constant(np.array(number), build.dtype(value), "limit")
    return build.binary(op_type, value, found)


def _gelu(build: Builder, x: str, spec: Activation, primitives: bool) -> str:
    if build.opset >= 20 and not primitives:
        kind, shape = build.dtype(x), build.shape(x)
        return build.emit("Gelu", (x,), kind, shape, approximate=spec.approximate)
    if spec.approximate == "tanh":
        cube = build.binary("Mul", build.binary("Mul", x, x), x)
        inner = build.binary("Add", x, build.scale(cube, 0.044715))
        squashed = build.unary("Tanh", build.scale(inner, math.sqrt(2 / math.pi)))
    else:
        squashed = build.unary("Erf", build.scale(x, math.sqrt(0.5)))
    one = build.constant(np.array(1.0), build.dtype(x), "one")
    return build.binary("Mul", build.scale(x, 0.5), build.binary("Add", squashed, one))


def _silu(build: Builder, x: str, spec: Activation, primitives: bool) -> str:
    return build.binary("Mul", x, build.unary("Sigmoid", build.scale(x, spec.alpha)))


def _named(build: Builder, x: str, spec: Activation, primitives: bool) -> str:
    return build.unary(spec.function, x)


def _squared(build: Builder, x: str, spec: Activation, primitives: bool) -> str:
    positive = build.unary("Relu", x)
    return build.binary("Mul", positive, positive)


_FUNCTIONS: Mapping[str, Callable[[Builder, str, Activation, bool], str]] = {
    "Gelu": _gelu,
    "Silu": _silu,
    "Relu": _named,
    "SquaredRelu": _squared,
    "Sigmoid": _named,
    "Tanh": _named,
}
