"""Attributes of ONNX nodes as plain Python, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnx import AttributeProto, GraphProto, TypeProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.data import SparseData, decoded, read_sparse, read_tensor
from gecompiler.ir.onnx_io.types import type_proto, type_text
from gecompiler.ir.onnx_io.write_data import write_sparse, write_tensor
from gecompiler.ir.op import Attr
from gecompiler.ir.types import OpaqueType, TensorType

A = AttributeProto

BodyReader = Callable[[str, GraphProto], Graph]
BodyWriter = Callable[[Graph, GraphProto], None]


def read_attr(
    proto: AttributeProto, read_body: BodyReader, folder: Path | None, where: str
) -> Attr:
    """The attribute's value; ModelError when its kind is not stated or not known.

    ``read_body`` turns a subgraph into a `Graph`. A tensor type reads as an `OpaqueType`.
    """
    name = proto.name
    plain = _PLAIN.get(proto.type)
    if plain is not None:
        return plain(proto)
    match proto.type:
        case A.TENSOR:
            return read_tensor(proto.t, name, folder, where)
        case A.TENSORS:
            return tuple(read_tensor(t, name, folder, where) for t in proto.tensors)
        case A.GRAPH:
            return read_body(name, proto.g)
        case A.GRAPHS:
            return tuple(read_body(name, g) for g in proto.graphs)
        case A.SPARSE_TENSOR:
            return read_sparse(proto.sparse_tensor, name, where)
        case A.SPARSE_TENSORS:
            return tuple(read_sparse(t, name, where) for t in proto.sparse_tensors)
    raise ModelError(
        f"attribute {name!r} has the unknown kind {proto.type}",
        where=where,
        hint="the exporter must state the kind of every attribute",
    )


def _opaque(proto: TypeProto) -> OpaqueType:
    return OpaqueType(type_text(proto), proto.SerializeToString(deterministic=True))


_PLAIN: dict[int, Callable[[AttributeProto], Attr]] = {
    A.INT: lambda p: p.i,
    A.FLOAT: lambda p: p.f,
    A.STRING: lambda p: decoded(p.s),
    A.INTS: lambda p: tuple(p.ints),
    A.FLOATS: lambda p: tuple(p.floats),
    A.STRINGS: lambda p: tuple(decoded(s) for s in p.strings),
    A.TYPE_PROTO: lambda p: _opaque(p.tp),
    A.TYPE_PROTOS: lambda p: tuple(_opaque(t) for t in p.type_protos),
}


def write_attr(
    proto: AttributeProto,
    name: str,
    value: Attr,
    kind: int | None,
    write_body: BodyWriter,
    where: str,
) -> None:
    """Fills the attribute, of the kind that its value has.

    ``kind`` is what the op's schema asks for, None where that is unknown: it tells an int meant
    as a float, and which kind of list an empty one is.
    """
    proto.name = name
    if isinstance(value, tuple):
        _write_list(proto, value, kind, write_body, where)
    elif isinstance(value, int) and kind != A.FLOAT:
        proto.type, proto.i = A.INT, int(value)
    elif isinstance(value, (int, float)):
        proto.type, proto.f = A.FLOAT, float(value)
    elif isinstance(value, (str, bytes)):
        proto.type, proto.s = A.STRING, _encoded(value)
    elif isinstance(value, Graph):
        proto.type = A.GRAPH
        write_body(value, proto.g)
    elif isinstance(value, Constant):
        _write_constant(proto, name, value)
    elif isinstance(value, (OpaqueType, TensorType)):
        proto.type = A.TYPE_PROTO
        proto.tp.CopyFrom(type_proto(value))
    else:
        raise ModelError(
            f"attribute {name!r} holds a {type(value).__name__}, which ONNX cannot", where=where
        )


def _write_constant(proto: AttributeProto, name: str, value: Constant) -> None:
    if isinstance(value.source, SparseData):
        proto.type = A.SPARSE_TENSOR
        write_sparse(proto.sparse_tensor, "", value.type, value.source)
    else:
        proto.type = A.TENSOR
        write_tensor(proto.t, name, value)


def _write_list(
    proto: AttributeProto,
    value: tuple[object, ...],
    kind: int | None,
    write_body: BodyWriter,
    where: str,
) -> None:
    items = list(value)
    if not items:
        proto.type = kind if kind in _LISTS else A.INTS  # type: ignore[assignment]
    elif kind != A.FLOATS and all(isinstance(v, int) for v in items):
        proto.type = A.INTS
        proto.ints.extend(int(v) for v in items)  # type: ignore[call-overload]
    elif all(isinstance(v, (int, float)) for v in items):
        proto.type = A.FLOATS
        proto.floats.extend(float(v) for v in items)  # type: ignore[arg-type]
    elif all(isinstance(v, (str, bytes)) for v in items):
        proto.type = A.STRINGS
        proto.strings.extend(_encoded(v) for v in items)  # type: ignore[arg-type]
    else:
        _write_objects(proto, items, write_body, where)


def _write_objects(
    proto: AttributeProto, items: list[object], write_body: BodyWriter, where: str
) -> None:
    graphs = [v for v in items if isinstance(v, Graph)]
    constants = [v for v in items if isinstance(v, Constant)]
    types = [v for v in items if isinstance(v, (OpaqueType, TensorType))]
    sparse = [v for v in constants if isinstance(v.source, SparseData)]
    if len(graphs) == len(items):
        proto.type = A.GRAPHS
        for graph in graphs:
            write_body(graph, proto.graphs.add())
    elif len(sparse) == len(items):
        proto.type = A.SPARSE_TENSORS
        for c in sparse:
            assert isinstance(c.source, SparseData)
            write_sparse(proto.sparse_tensors.add(), "", c.type, c.source)
    elif len(constants) == len(items):
        proto.type = A.TENSORS
        for c in constants:
            write_tensor(proto.tensors.add(), proto.name, c)
    elif len(types) == len(items):
        proto.type = A.TYPE_PROTOS
        proto.type_protos.extend(type_proto(t) for t in types)
    else:
        kinds = ", ".join(sorted({type(v).__name__ for v in items}))
        raise ModelError(f"attribute {proto.name!r} lists {kinds}, which ONNX cannot", where=where)


_LISTS = frozenset(
    (A.INTS, A.FLOATS, A.STRINGS, A.TENSORS, A.GRAPHS, A.SPARSE_TENSORS, A.TYPE_PROTOS)
)


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
