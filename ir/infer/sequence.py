"""Types through SequenceMap: its body sees one element of each sequence at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecompiler.ir.infer.bodies import Control, Walk, body_of, infer_body
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.onnx import Outcome, opaque
from gecompiler.ir.types import DType, OpaqueType, TensorType, ValueType

if TYPE_CHECKING:
    from onnx import TypeProto


def infer_sequence_map(node: Node, walk: Walk) -> Control:
    """Sequences of what the body gives; of their elements' sizes only numbers are told."""
    body = body_of(node, "body", len(node.op.outputs))
    entering = [_element(node.scope.graph.type(name)) for name in node.op.inputs]
    found = infer_body(node, walk, body, entering)
    outcomes = [_sequence(type_) for type_ in found.types]
    return Control(outcomes, {"body": found.body})


def _element(type_: ValueType) -> ValueType:
    """What the body sees: an element of a sequence, or a tensor itself.

    Elements differ in their sizes, so that only a declared rank of the body's own is known.
    """
    if not isinstance(type_, OpaqueType):
        return type_
    inner = _proto(type_).sequence_type.elem_type
    if inner.WhichOneof("value") != "tensor_type":
        return None
    return TensorType(DType.from_code(inner.tensor_type.elem_type), None)


def _proto(type_: OpaqueType) -> TypeProto:
    from onnx import TypeProto

    proto = TypeProto()
    proto.ParseFromString(type_.proto)
    return proto


def _sequence(type_: ValueType) -> Outcome:
    from onnx import TypeProto

    if not isinstance(type_, TensorType):
        return None, None
    proto = TypeProto()
    tensor = proto.sequence_type.elem_type.tensor_type
    tensor.elem_type = type_.dtype.code
    if type_.shape is not None:
        tensor.shape.SetInParent()
        for size in type_.shape:
            dim = tensor.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return opaque(proto)
