"""One op as an ONNX model of its own, for a runtime to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper

from gecompiler.backends.run_inputs import Value
from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_attrs import write_attr
from gecompiler.ir.onnx_schema import attribute_kinds
from gecompiler.ir.onnx_types import type_proto
from gecompiler.ir.onnx_write_data import tensor_proto
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, OpaqueType, TensorType, ValueType

IR_VERSION = min(onnx.IR_VERSION, 11)

CARRIER = {
    DType.BF16: DType.F32,
    DType.F8E4M3FN: DType.F32,
    DType.F8E4M3FNUZ: DType.F32,
    DType.F8E5M2: DType.F32,
    DType.F8E5M2FNUZ: DType.F32,
    DType.F8E8M0: DType.F32,
    DType.F4E2M1: DType.F32,
    DType.F6E2M3: DType.F32,
    DType.F6E3M2: DType.F32,
    DType.I4: DType.I8,
    DType.U4: DType.U8,
    DType.I2: DType.I8,
    DType.U2: DType.U8,
}
"""Types that numpy has not, and one that holds each of their numbers exactly."""


@dataclass(frozen=True)
class Call:
    """An op with what goes into it: everything a runtime needs to know.

    ``values`` are the inputs in order (None for one left out), ``captures`` what its bodies take
    from around them, ``declared`` the types that the graph states for inputs and outputs.
    """

    op: Op
    opsets: Mapping[str, int]
    values: tuple[Value, ...]
    captures: Mapping[str, Value]
    input_types: tuple[ValueType, ...]
    output_types: tuple[ValueType, ...]

    @property
    def version(self) -> int:
        """The version of the op's operator set."""
        return self.opsets.get(self.op.domain, 1)


def input_names(op: Op) -> list[str]:
    """What the node model calls each input, ``""`` for one left out.

    Bodies may use the outer names, so an op with bodies keeps its own.
    """
    if op.bodies:
        return list(op.inputs)
    return [f"i{k}" if name else "" for k, name in enumerate(op.inputs)]


def output_names(op: Op) -> list[str]:
    """What the node model calls each output, ``""`` for one left out."""
    return [f"op_output_{k}" if name else "" for k, name in enumerate(op.outputs)]


def feeds(call: Call) -> dict[str, Value]:
    """The values by the names that the node model gives them."""
    named = dict(zip(input_names(call.op), call.values, strict=True))
    named.pop("", None)
    return {**named, **call.captures}


def build(call: Call, *, fixed: frozenset[str] = frozenset(), carried: bool = False) -> ModelProto:
    """The model. Inputs named in ``fixed`` become initializers.

    With ``carried`` inputs and outputs of types that numpy lacks are of a wider type outside and
    cast inside, so that a runtime can be fed with numpy arrays.
    """
    op, names = call.op, input_names(call.op)
    types = _feed_types(call)
    before, after, graph_inputs, graph_outputs = [], [], [], []
    for name, type_ in types.items():
        if name in fixed:
            continue
        outside, cast = _carried(name, type_) if carried else (name, None)
        before += [] if cast is None else [cast]
        graph_inputs.append(helper.make_value_info(outside, _outside(type_, cast is not None)))
    for name, type_ in zip(output_names(op), call.output_types, strict=True):
        if not name:
            continue
        exotic = carried and isinstance(type_, TensorType) and type_.dtype in CARRIER
        graph_outputs.append(onnx.ValueInfoProto(name=f"{name}_wide" if exotic else name))
        if exotic and isinstance(type_, TensorType):
            after.append(_cast(name, f"{name}_wide", CARRIER[type_.dtype]))
    tensors = [
        tensor_proto(name, Constant.of(value))
        for name, value in feeds(call).items()
        if name in fixed
    ]
    node = node_proto(call, names, output_names(op))
    graph = helper.make_graph([*before, node, *after], "node", graph_inputs, graph_outputs, tensors)
    return helper.make_model(graph, opset_imports=_opset_imports(call), ir_version=IR_VERSION)


def carrier_name(name: str, type_: ValueType) -> str:
    """The name under which a carried model takes or gives that value."""
    exotic = isinstance(type_, TensorType) and type_.dtype in CARRIER
    return f"{name}_wide" if exotic else name


def _feed_types(call: Call) -> dict[str, ValueType]:
    """The actual types of all that is fed, by name."""
    declared = dict(zip(input_names(call.op), call.input_types, strict=True))
    return {name: actual_type(value, declared.get(name)) for name, value in feeds(call).items()}


def actual_type(value: Value, declared: ValueType) -> ValueType:
    """The type of a value at run time: rank and element type of an array, else as declared."""
    if isinstance(value, np.ndarray):
        return TensorType(DType.from_numpy(value.dtype), value.shape)
    if declared is not None or not isinstance(value, list) or not value:
        return declared
    element = type_proto(TensorType(DType.from_numpy(np.asarray(value[0]).dtype), None))
    proto = TypeProto()
    proto.sequence_type.elem_type.CopyFrom(element)
    return OpaqueType("sequence", proto.SerializeToString(deterministic=True))


def _outside(type_: ValueType, carried: bool) -> TypeProto:
    """The type of a graph input: element type and rank, no sizes, so that sizes may differ."""
    if not isinstance(type_, TensorType):
        return type_proto(type_)
    dtype = CARRIER[type_.dtype] if carried else type_.dtype
    return helper.make_tensor_type_proto(dtype.code, [None] * (type_.rank or 0))


def _carried(name: str, type_: ValueType) -> tuple[str, NodeProto | None]:
    if not isinstance(type_, TensorType) or type_.dtype not in CARRIER:
        return name, None
    return f"{name}_wide", _cast(f"{name}_wide", name, type_.dtype)


def _cast(source: str, target: str, dtype: DType) -> NodeProto:
    return helper.make_node("Cast", [source], [target], to=dtype.code)


def node_proto(call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> NodeProto:
    """The op as a node."""
    op = call.op
    node = NodeProto(op_type=op.op_type, domain=op.domain, input=inputs, output=outputs)
    kinds = attribute_kinds(op.op_type, op.domain, call.version)
    where = f"node {op.name!r}"
    for name, value in op.attrs.items():
        node.attribute.append(write_attr(name, value, kinds.get(name), body_proto, where))
    return node


def body_proto(body: Graph) -> GraphProto:
    """A subgraph with its data in it."""
    from gecompiler.ir.onnx_export import graph_proto

    return graph_proto(body)


def _opset_imports(call: Call) -> list[onnx.OperatorSetIdProto]:
    if call.op.bodies:
        versions = dict(call.opsets)
    else:
        versions = {"": call.opsets.get("", 20), call.op.domain: call.version}
    return [helper.make_opsetid(d, v) for d, v in sorted(versions.items()) if d != "gecompiler"]
