"""One op as an ONNX model of its own, for a runtime to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, TypeProto

from gecompiler.backends.execution.run_inputs import Value
from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import symbol
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.model import build_model
from gecompiler.ir.onnx_io.types import type_proto
from gecompiler.ir.onnx_io.write_data import write_tensor
from gecompiler.ir.op import NO_INFO, Op
from gecompiler.ir.types import DType, OpaqueType, TensorType, ValueType

_FLOATS = "BF16 F8E4M3FN F8E4M3FNUZ F8E5M2 F8E5M2FNUZ F8E8M0 F4E2M1 F6E2M3 F6E3M2"  # all within f32
CARRIER: dict[DType, DType] = {
    **dict.fromkeys((DType[name] for name in _FLOATS.split()), DType.F32),
    **dict.fromkeys((DType.I4, DType.I2), DType.I8),
    **dict.fromkeys((DType.U4, DType.U2), DType.U8),
}
"""Types that numpy has not, and one that holds each of their numbers exactly."""

_LIKE = ("RandomNormalLike", "RandomUniformLike")
RANDOM_OPS = frozenset(("RandomNormal", "RandomUniform", *_LIKE, "Multinomial", "Bernoulli"))
"""Ops of ai.onnx that draw numbers; a runtime goes on drawing from where it stopped."""


@dataclass(frozen=True)
class Call:
    """An op with what goes into it: everything a runtime needs to know.

    ``values`` are the inputs in order (None for one left out), ``captures`` what its bodies take
    from around them; the types are those that the graph states.
    """

    op: Op
    opsets: Mapping[str, int]
    values: tuple[Value, ...]
    captures: Mapping[str, Value]
    input_types: tuple[ValueType, ...]
    output_types: tuple[ValueType, ...]
    trains: bool = False
    """Whether the run asks a Dropout to drop."""

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


def fed_types(call: Call) -> dict[str, ValueType]:
    """The types of all that is fed, by name: of arrays as they are, of the rest as stated."""
    stated = dict(zip(input_names(call.op), call.input_types, strict=True))
    return {name: _type_of(value, stated.get(name)) for name, value in feeds(call).items()}


def carrier(type_: ValueType) -> DType | None:
    """The wider type that carries a tensor of a type numpy lacks, None where none is needed."""
    return CARRIER.get(type_.dtype) if isinstance(type_, TensorType) else None


def carried_name(name: str, type_: ValueType) -> str:
    """What a carried model calls an input or output outside."""
    return f"{name}_wide" if carrier(type_) else name


def build(call: Call, *, fixed: frozenset[str] = frozenset(), carried: bool = False) -> ModelProto:
    """The model. Inputs named in ``fixed`` become initializers.

    With ``carried`` inputs and outputs of types that numpy lacks are of a wider type outside and
    cast inside, so that a runtime can be fed with numpy arrays.
    """
    graph = Graph("node", _opsets(call))
    given = feeds(call)
    for name, type_ in fed_types(call).items():
        wide = carrier(type_) if carried else None
        if name in fixed:
            graph.add_constant(name, Constant.of(given[name]))
        elif wide is not None and isinstance(type_, TensorType):
            outside = graph.add_input(f"{name}_wide", _of_rank(name, TensorType(wide, type_.shape)))
            _add_cast(graph, outside, name, type_.dtype)
        else:
            graph.add_input(name, _of_rank(name, type_))
    names = output_names(call.op)
    inputs = tuple(input_names(call.op))
    graph.add_op(call.op.with_(inputs=inputs, outputs=tuple(names), info=NO_INFO))
    outputs: list[str] = []
    for name, type_ in zip(names, call.output_types, strict=True):
        wide = carrier(type_) if carried and name else None
        if wide is not None:
            _add_cast(graph, name, f"{name}_wide", wide)
        outputs += [f"{name}_wide" if wide is not None else name] if name else []
    graph.set_outputs(outputs)
    return build_model(graph, _with_data)


def _with_data(proto: GraphProto, name: str, constant: Constant) -> str:
    """Writes a constant with its data, wherever that lies."""
    loaded = Constant(constant.type, constant.array())
    write_tensor(proto.initializer.add(), name, loaded)
    return name


def _add_cast(graph: Graph, source: str, target: str, dtype: DType) -> None:
    graph.add_op(Op(f"to_{target}", "Cast", (source,), (target,), {"to": dtype.code}))


def _of_rank(name: str, type_: ValueType) -> ValueType:
    """The type without its sizes, so that one model serves all sizes."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return TensorType(type_.dtype, tuple(symbol(f"{name}_{i}") for i in range(len(type_.shape))))


def _type_of(value: Value, stated: ValueType) -> ValueType:
    if isinstance(value, np.ndarray):
        return TensorType(DType.from_numpy(value.dtype), value.shape)
    if stated is not None or not isinstance(value, list) or not value:
        return stated
    item = np.asarray(value[0])
    proto = TypeProto()
    element = type_proto(TensorType(DType.from_numpy(item.dtype), None))
    proto.sequence_type.elem_type.CopyFrom(element)
    return OpaqueType("sequence", proto.SerializeToString(deterministic=True))


def _opsets(call: Call) -> dict[str, int]:
    if call.op.bodies:
        return dict(call.opsets)
    return {"": call.opsets.get("", 20), call.op.domain: call.version}
