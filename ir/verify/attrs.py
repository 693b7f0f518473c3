"""Kinds of attribute values, as onnx names them, and which fit where."""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import OpaqueType, TensorType

EMPTY_LIST = "an empty list"

_KINDS: Mapping[type, str] = {
    int: "INT",
    bool: "INT",
    float: "FLOAT",
    str: "STRING",
    bytes: "STRING",
    Constant: "TENSOR",
    Graph: "GRAPH",
    OpaqueType: "TYPE_PROTO",
    TensorType: "TYPE_PROTO",
}
_LISTS = frozenset(f"{kind}S" for kind in _KINDS.values())
_ALSO: Mapping[str, frozenset[str]] = {
    # An integer may be meant as a float; how a tensor is stored is the constant's affair.
    "FLOAT": frozenset({"INT"}),
    "FLOATS": frozenset({"INTS"}),
    "SPARSE_TENSOR": frozenset({"TENSOR"}),
    "SPARSE_TENSORS": frozenset({"TENSORS"}),
}


def kind_of(value: object) -> str:
    """The kind of an attribute's value; the Python type's name where it may not be one."""
    if not isinstance(value, tuple):
        return _KINDS.get(type(value), type(value).__name__)
    if not value:
        return EMPTY_LIST
    kinds = {_KINDS.get(type(item), type(item).__name__) for item in value}
    if kinds == {"INT", "FLOAT"}:
        return "FLOATS"
    return f"{kinds.pop()}S" if len(kinds) == 1 else f"a list of {' and '.join(sorted(kinds))}"


def fits(value: object, wanted: str) -> bool:
    """Whether the value can stand where a schema asks for that kind."""
    kind = kind_of(value)
    if kind == EMPTY_LIST:
        return wanted.endswith("S")
    return kind == wanted or kind in _ALSO.get(wanted, ())


def check_attr_kinds(graph: Graph, op: Op) -> None:
    """Raises GraphError for an attribute that is none of what attributes may be."""
    for name, value in op.attrs.items():
        kind = kind_of(value)
        if kind not in _LISTS and kind not in _KINDS.values() and kind != EMPTY_LIST:
            raise GraphError(
                f"op {op.name!r} ({op.kind}): attribute {name!r} is of Python type {kind}",
                where=graph.name,
                hint="attributes are int, float, str, bytes, Constant, Graph, or tuples of one",
            )
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise GraphError(
                    f"op {op.name!r} ({op.kind}): attribute {name!r} holds {item}, which does "
                    "not fit in 64 bits",
                    where=graph.name,
                )
