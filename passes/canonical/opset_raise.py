"""Raising a graph's ai.onnx opset, where every op keeps its meaning.

Only from 17 on, to 20: what changed in between is known op by op. An op outside the table, or
one with a body, means that the opset stays.
"""

from __future__ import annotations

from functools import lru_cache

import onnx

from gecompiler.ir.op import Op
from gecompiler.passes.rewriting import Rewriter

TARGET = 20
_LOWEST = 17

_COMPATIBLE = frozenset(
    {
        *("Cast", "CastLike", "Constant", "ConstantOfShape", "Equal", "Identity", "IsInf"),
        *("IsNaN", "Pad", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size"),
    }
)
"""Changed between 17 and 20 only by further types, and by options off by default."""

_REDUCTIONS = frozenset(
    {
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
        *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
    }
)
"""Took their axes from an attribute before 18, and take them from an input since."""


def raise_opset(r: Rewriter) -> bool:
    """Raises the graph to opset 20 if it is not there yet; whether it now is."""
    if r.opset >= TARGET:
        return True
    if r.opset < _LOWEST or r.is_body or not all(_may_stay(r, op) for op in r.graph.ops):
        return False
    for op in r.graph.ops:
        if op.is_("Split") and not op.input(1):
            attrs = {**op.attrs, "num_outputs": len(op.outputs)}
            r.graph.replace_op(op.name, op.with_(attrs=attrs))
        elif op.op_type in _REDUCTIONS and not op.domain and "axes" in op.attrs:
            _move_axes(r, op)
    r.graph.opsets[""] = TARGET
    return True


def _move_axes(r: Rewriter, op: Op) -> None:
    attrs = {key: value for key, value in op.attrs.items() if key != "axes"}
    axes = r.ints(op.attr("axes"), f"{op.name}_axes")
    r.graph.replace_op(op.name, op.with_(inputs=(op.inputs[0], axes), attrs=attrs))


def _may_stay(r: Rewriter, op: Op) -> bool:
    if op.bodies:
        return False
    if op.domain or op.op_type in _COMPATIBLE or op.op_type in _REDUCTIONS:
        return True
    if op.is_("Split"):
        return bool(op.input(1)) or _splits_evenly(r, op)
    return _since(op.op_type, r.opset) == _since(op.op_type, TARGET)


def _splits_evenly(r: Rewriter, op: Op) -> bool:
    shape = r.facts.shape(op.inputs[0])
    size = shape[op.attr("axis", 0)] if shape else None
    return isinstance(size, int) and size % len(op.outputs) == 0


@lru_cache(maxsize=1024)
def _since(op_type: str, opset: int) -> int | None:
    try:
        return int(onnx.defs.get_schema(op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None
