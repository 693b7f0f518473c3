"""Whether an op may be left as it is when the version of ai.onnx changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnx import TensorProto
from onnx.defs import OpSchema

from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.schema import schema
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType

REDEFINED = {
    "BatchNormalization": (14,),
    "GridSample": (20,),
    "Hardmax": (13,),
    "LogSoftmax": (13,),
    "Resize": (11, 13, 18, 19),
    "RoiAlign": (16,),
    "Softmax": (13,),
    "Upsample": (9, 10),
}
"""Versions from which an op of the same form means something else."""


def refusal(graph: Graph, op: Op, source: int, target: int) -> str:
    """Why the op of version ``source`` cannot stand in version ``target``; ``""`` if it can."""
    if op.domain:
        return ""
    before, after = (schema(op.op_type, "", version) for version in (source, target))
    if after is None or after.deprecated:
        return f"{op.op_type} is not in opset {target}"
    if before is None or before.since_version == after.since_version:
        return ""
    low, high = sorted((source, target))
    if any(low < version <= high for version in REDEFINED.get(op.op_type, ())):
        return f"{op.op_type} means something else in opset {target}"
    return (
        _formals(before, after, op)
        or _attributes(before, after, op, target)
        or type_refusal(graph, op, target)
    )


def _formals(before: OpSchema, after: OpSchema, op: Op) -> str:
    """Inputs and outputs that are there must be the same ones in both versions."""
    for kind, values, one, other in (
        ("input", op.inputs, before.inputs, after.inputs),
        ("output", op.outputs, before.outputs, after.outputs),
    ):
        for index, value in enumerate(values):
            if not value or (index >= len(one) and len(one) == len(other)):
                continue  # left out, or one more of a variadic
            if index >= len(other) or index >= len(one) or one[index].name != other[index].name:
                return f"its {kind} {index} is not the same in that opset"
    required = OpSchema.FormalParameterOption.Single
    for index in range(len(op.inputs), len(after.inputs)):
        if after.inputs[index].option == required:
            return f"that opset wants an input {after.inputs[index].name!r}"
    return ""


def _attributes(before: OpSchema, after: OpSchema, op: Op, target: int) -> str:
    theirs: Any = after.attributes
    ours: Any = before.attributes
    for name, value in op.attrs.items():
        if name not in theirs and value != _default(ours.get(name)):
            return f"its attribute {name!r} is not in opset {target}"
    for name, attribute in theirs.items():
        if name in op.attrs:
            continue
        if attribute.required:
            return f"that opset wants an attribute {name!r}"
        if name in ours and _default(ours[name]) != _default(attribute):
            return f"its attribute {name!r} has another default in opset {target}"
    return ""


def _default(attribute: Any) -> object:
    from onnx.helper import get_attribute_value

    if attribute is None or not attribute.default_value.type:
        return None
    value = get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def dropped(op: Op, target: int) -> Op:
    """The op without attributes that only say what is so anyway in ``target``."""
    after: Any = schema(op.op_type, "", target)
    if op.domain or after is None:
        return op
    kept = {name: value for name, value in op.attrs.items() if name in after.attributes}
    return op if len(kept) == len(op.attrs) else op.with_(attrs=kept)


def type_refusal(graph: Graph, op: Op, target: int) -> str:
    """Which element type among its values the op does not take in ``target``; ``""`` if all."""
    after = schema(op.op_type, "", target)
    if op.domain or after is None:
        return ""
    for values, formals in ((op.inputs, after.inputs), (op.outputs, after.outputs)):
        for index, value in enumerate(values):
            type_ = graph.tensor(value) if value else None
            formal = formals[min(index, len(formals) - 1)]
            if type_ is not None and not _accepts(formal.types, type_):
                return f"{op.op_type} does not take {type_.dtype.short} in opset {target}"
    return ""


def _accepts(types: Iterable[str], type_: TensorType) -> bool:
    allowed = set(types)
    return f"tensor({_name(type_.dtype)})" in allowed or not any(
        t.startswith("tensor(") for t in allowed
    )


def _name(dtype: DType) -> str:
    return str(TensorProto.DataType.Name(dtype.code)).lower()
