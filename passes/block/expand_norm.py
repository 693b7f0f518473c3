"""Norms as ai.onnx's, or as the ops they are made of, step by step as the op's text has it."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.block.patterns import is_wider


def expand_norm(build: Builder, op: Op, primitives: bool) -> tuple[str, ...]:
    """The norm of X, or of the sum that is its second result."""
    spec, inputs = Norm.of(op), NormInputs.of(op)
    total = inputs.x
    if inputs.bias:
        total = build.binary("Add", total, inputs.bias)
    if spec.adds:
        total = build.binary("Add", total, inputs.residual)
    standard = None if primitives else _standard(build, total, spec, inputs)
    value = _primitive(build, total, spec, inputs) if standard is None else standard
    return (value, total)[: len(op.outputs)]


def _standard(build: Builder, x: str, spec: Norm, inputs: NormInputs) -> str | None:
    """LayerNormalization or RMSNormalization, where it means the same."""
    kind, shape = build.dtype(x), build.shape(x)
    if build.opset < (17 if spec.centred else 23) or spec.offset or not inputs.scale:
        return None
    same = spec.scale_type is spec.output is kind
    typed = same and spec.stash is DType.F32 and not is_wider(kind, DType.F32)
    alike = all(build.dtype(v) is kind for v in (inputs.scale, inputs.shift) if v)
    if not typed or not alike or (inputs.shift and not spec.centred):
        return None
    op_type = "LayerNormalization" if spec.centred else "RMSNormalization"
    listed = [v for v in (x, inputs.scale, inputs.shift) if v]
    attrs = {"axis": spec.axis, "epsilon": spec.epsilon, "stash_type": 1}
    return build.emit(op_type, listed, kind, shape, **attrs)


def _primitive(build: Builder, x: str, spec: Norm, inputs: NormInputs) -> str:
    value = build.cast(x, spec.stash)
    if spec.centred:
        value = build.binary("Sub", value, _mean(build, value, spec.axis))
    square = _mean(build, build.binary("Mul", value, value), spec.axis)
    epsilon = build.constant(np.array(spec.epsilon), spec.stash, "epsilon")
    root = build.unary("Sqrt", build.binary("Add", square, epsilon))
    value = build.cast(build.binary("Div", value, root), spec.scale_type)
    if inputs.scale:
        scale = build.cast(inputs.scale, spec.scale_type)
        if spec.offset:
            offset = build.constant(np.array(spec.offset), spec.scale_type, "offset")
            scale = build.binary("Add", scale, offset)
        value = build.binary("Mul", value, scale)
    if inputs.shift:
        value = build.binary("Add", value, build.cast(inputs.shift, spec.scale_type))
    return build.cast(value, spec.output)


def _mean(build: Builder, value: str, axis: int) -> str:
    """The mean over the axes from ``axis`` on, which stay as ones."""
    shape = build.shape(value)
    axes = tuple(range(len(shape) + axis if axis < 0 else axis, len(shape)))
    kept = (*shape[: axes[0]], *(1,) * len(axes))
    kind = build.dtype(value)
    if build.opset < 18:
        return build.emit("ReduceMean", (value,), kind, kept, axes=axes, keepdims=1)
    return build.emit("ReduceMean", (value, build.ints(axes)), kind, kept, keepdims=1)
