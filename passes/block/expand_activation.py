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
    """``act(x + bias) * up``."""
    spec = Activation.of(op)
    value, up = op.inputs[0], op.input(1) if spec.gated else ""
    bias = op.input(2 if spec.gated else 1)
    if bias:
        value = build.binary("Add", value, bias)
    if spec.gated and not up:
        halves = _halves(build, value)
        value, up = halves if spec.gate == "first" else halves[::-1]
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
