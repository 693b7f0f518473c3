"""Element types: what an op's schema asks of its inputs and says of its outputs.

The schemas are onnx's. An op whose inputs do not fit its schema is refused here, naming the
node, before any rule looks at its shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gecompiler.ir.infer.node import Node
from gecompiler.ir.types import DType, OpaqueType


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal input or output: its type variable and the element types it may have.

    ``allowed`` is None where other than tensor types are allowed too.
    """

    name: str
    variable: str
    allowed: frozenset[DType] | None
    optional: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The part of a schema that concerns numbers and types of inputs and outputs."""

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int
    max_outputs: int
    heterogeneous: bool

    def formal(self, index: int) -> Formal:
        """The formal of that input; the last one repeats when it is variadic."""
        return self.inputs[min(index, len(self.inputs) - 1)]


@lru_cache(maxsize=1)
def _tensor_types() -> dict[str, DType]:
    from onnx import TensorProto

    codes = dict(TensorProto.DataType.items())
    known = {d.code: d for d in DType}
    return {f"tensor({n.lower()})": known[c] for n, c in codes.items() if c in known}


@lru_cache(maxsize=1024)
def signature(op_type: str, domain: str, version: int) -> Signature | None:
    """The signature of an op at that opset version, None when onnx has no such op."""
    schema = find_schema(op_type, domain, version)
    if schema is None:
        return None
    last = schema.inputs[-1] if schema.inputs else None
    return Signature(
        tuple(map(_formal, schema.inputs)),
        tuple(map(_formal, schema.outputs)),
        schema.min_input,
        schema.max_input,
        schema.max_output,
        last is not None and not last.is_homogeneous,
    )


def find_schema(op_type: str, domain: str, version: int) -> Any:
    """The schema of an op at that opset version, or None."""
    from onnx import defs

    try:
        return defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None


def _formal(formal: Any) -> Formal:
    from onnx.defs import OpSchema

    known = _tensor_types()
    types = frozenset(known[t] for t in formal.types if t in known)
    return Formal(
        formal.name,
        formal.type_str,
        types if len(types) == len(formal.types) else None,
        formal.option == OpSchema.FormalParameterOption.Optional,
    )


def output_dtypes(node: Node, found: Signature) -> list[DType | None]:
    """The element types of the outputs, None where the schema leaves them open.

    ModelError, naming the node, when the inputs do not fit the schema.
    """
    _check_numbers(node, found)
    bound: dict[str, DType] = {}
    if not found.heterogeneous:
        for index, name in enumerate(node.op.inputs):
            if name:
                _bind(node, name, found.formal(index), bound)
    result: list[DType | None] = []
    for index in range(len(node.op.outputs)):
        formal = found.outputs[min(index, len(found.outputs) - 1)]
        dtype = bound.get(formal.variable)
        if dtype is None and formal.allowed is not None and len(formal.allowed) == 1:
            (dtype,) = formal.allowed
        result.append(dtype)
    return result


def _bind(node: Node, name: str, formal: Formal, bound: dict[str, DType]) -> None:
    type_ = node.scope.graph.type(name)
    if type_ is None or formal.allowed is None:
        if type_ is not None and not isinstance(type_, OpaqueType):
            bound.setdefault(formal.variable, type_.dtype)
        return
    if isinstance(type_, OpaqueType):
        node.fail(f"input {formal.name!r} must be a tensor, found {type_}")
    dtype = type_.dtype
    if dtype not in formal.allowed:
        node.fail(
            f"input {formal.name!r} ({name}) may not be {dtype.short}",
            f"{node.op.kind} takes {', '.join(sorted(d.short for d in formal.allowed))} here",
        )
    other = bound.setdefault(formal.variable, dtype)
    if other is not dtype:
        node.fail(
            f"input {formal.name!r} ({name}) is {dtype.short}, but {other.short} is needed here",
            f"inputs of type {formal.variable} must have one element type; put a Cast between",
        )


def _check_numbers(node: Node, found: Signature) -> None:
    given = len(node.op.inputs)
    if not found.min_inputs <= given <= found.max_inputs:
        most = "or more" if found.max_inputs > 2**30 else f"to {found.max_inputs}"
        node.fail(f"{node.op.kind} takes {found.min_inputs} {most} inputs, found {given}")
    if len(node.op.outputs) > found.max_outputs:
        node.fail(f"{node.op.kind} has at most {found.max_outputs} outputs")
    for index in range(min(given, found.min_inputs)):
        formal = found.formal(index)
        if not node.op.inputs[index] and not formal.optional:
            node.fail(f"the required input {formal.name!r} is left out")
