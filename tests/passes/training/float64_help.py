"""A graph in float64, for gradients that are held against differences."""

from __future__ import annotations

import numpy as np

from gecompiler.ir import Constant, Graph
from gecompiler.ir.block_ops import NORMS
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType, TensorType, ValueType

_CODES = ("stash_type", "scale_type", "output_type")


def in_float64(graph: Graph) -> Graph:
    """The same computation with float64 in the place of float32."""
    wide = Graph(graph.name, graph.opsets)
    for name in graph.inputs:
        wide.add_input(name, _type(graph.type(name)))
    for name, constant in graph.constants.items():
        single = constant.type.dtype is DType.F32
        wide.add_constant(
            name, Constant.of(constant.array().astype(np.float64)) if single else constant
        )
    wide.add_ops(
        [
            (_op(op), [_type(graph.type(v)) if v else None for v in op.outputs])
            for op in graph.topological()
        ]
    )
    wide.set_outputs(graph.outputs)
    return wide


def _type(kind: ValueType) -> ValueType:
    if isinstance(kind, TensorType) and kind.dtype is DType.F32:
        return TensorType(DType.F64, kind.shape)
    return kind


def _op(op: Op) -> Op:
    attrs = dict(op.attrs)
    if op.is_("Cast") and attrs["to"] == DType.F32.code:
        attrs["to"] = DType.F64.code
    if op.domain == GE_DOMAIN and op.op_type in NORMS:
        attrs.update(dict.fromkeys(_CODES, DType.F64.code))
    for name, value in attrs.items():
        if isinstance(value, Constant) and value.type.dtype is DType.F32:
            attrs[name] = Constant.of(value.array().astype(np.float64))
    return op.with_(attrs=attrs)
