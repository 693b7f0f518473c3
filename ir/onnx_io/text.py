"""Texts of an ONNX file that are no texts: protobuf hands those out as bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.order import subgraphs

_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(name: str) -> str:
    r"""The name with line breaks and other control characters spelled out (``\n``).

    For names that only people read: of ops, groups, labels. Reports have a line for each.
    """
    if name.isprintable():
        return name
    return _BREAKS.sub(lambda found: found.group().encode("unicode_escape").decode(), name)


MAX_NAME = 2**14
"""Characters of a name; those that exporters make have a few hundred."""


def check_texts(model: ModelProto, where: str) -> None:
    """ModelError when a name in the model is not UTF-8, or absurdly long.

    Subgraphs must nest within bounds.
    """
    for texts in _texts_of_model(model):
        for text in texts:
            if isinstance(text, str) and len(text) > MAX_NAME:
                raise ModelError(
                    f"the name {text[:60]!r}... has {len(text)} characters, more than {MAX_NAME}",
                    where=where,
                    hint="the file is damaged, or its exporter put data into names",
                )
            if isinstance(text, bytes):
                raise ModelError(
                    f"the name {text[:60]!r} is not UTF-8",
                    where=where,
                    hint="the file is damaged; copy or download it again",
                )


def _texts_of_model(model: ModelProto) -> Iterator[Iterable[object]]:
    yield (entry.domain for entry in model.opset_import)
    yield from _texts_of_graph(model.graph)
    for function in model.functions:
        yield (function.name, function.domain, function.overload)
        yield from (function.input, function.output, function.attribute)
        yield (entry.domain for entry in function.opset_import)
        yield from _texts_of_nodes(function.node)
        for attr in function.attribute_proto:
            yield (attr.name,)


def _texts_of_graph(graph: GraphProto) -> Iterator[Iterable[object]]:
    yield (graph.name,)
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            yield _texts_of_value(value)
    for tensor in graph.initializer:
        yield _texts_of_tensor(tensor)
    for sparse in graph.sparse_initializer:
        yield (sparse.values.name,)
    yield from _texts_of_nodes(graph.node)


def _texts_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[Iterable[object]]:
    for node in nodes:
        yield (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for attr in node.attribute:
            yield (attr.name, attr.ref_attr_name)
            if attr.HasField("t"):
                yield _texts_of_tensor(attr.t)
        if node.attribute:
            for graph in subgraphs(node):
                yield from _texts_of_graph(graph)


def _texts_of_tensor(tensor: TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


def _texts_of_value(value: ValueInfoProto) -> Iterator[object]:
    yield value.name
    yield from _texts_of_type(value.type)


def _texts_of_type(type_: TypeProto) -> Iterator[object]:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        for dim in getattr(type_, kind).shape.dim:
            yield dim.dim_param
    elif kind in ("sequence_type", "optional_type"):
        yield from _texts_of_type(getattr(type_, kind).elem_type)
    elif kind == "map_type":
        yield from _texts_of_type(type_.map_type.value_type)
