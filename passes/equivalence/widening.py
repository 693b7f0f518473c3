"""A region in wider floats: where it differs from the region itself, that is rounding."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr, Op
from gecompiler.ir.types import DType, TensorType, ValueType

_NARROW = (DType.F16, DType.BF16, DType.F32)
_TYPE_ATTRS = ("to", "dtype")
_OPAQUE = ("Attention", "LayerNormalization", "RMSNormalization")
"""Ops that say in which type they compute."""


def widened(graph: Graph) -> Graph | None:
    """The graph with float64 for all narrower floats; None where an op fixes its own type."""
    if any(op.domain or op.op_type in _OPAQUE or op.bodies for op in graph.ops):
        return None
    made = Graph(graph.name, graph.opsets)
    for name in graph.inputs:
        made.add_input(name, _type(graph.type(name)))
    for name, constant in graph.constants.items():
        made.add_constant(name, _constant(constant))
    made.add_ops((_op(op), [_type(graph.type(v)) for v in op.outputs]) for op in graph.ops)
    made.set_outputs(graph.outputs)
    return made


def _type(type_: ValueType) -> ValueType:
    if isinstance(type_, TensorType) and type_.dtype in _NARROW:
        return TensorType(DType.F64, type_.shape)
    return type_


def _constant(constant: Constant) -> Constant:
    if constant.type.dtype not in _NARROW or constant.data is None:
        return constant
    return Constant.of(np.asarray(constant.data).astype(np.float64), DType.F64)


def _op(op: Op) -> Op:
    changed: dict[str, Attr] = {}
    for name in _TYPE_ATTRS:
        code = op.attr(name)
        if isinstance(code, int) and code in [t.code for t in _NARROW]:
            changed[name] = DType.F64.code
    value = op.attr("value")
    if isinstance(value, Constant):
        changed["value"] = _constant(value)
    return op.with_(attrs={**op.attrs, **changed}) if changed else op
