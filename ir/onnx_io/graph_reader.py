"""From GraphProto to Graph: values, nodes, subgraphs, and the functions that nodes call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.attrs import read_attr
from gecompiler.ir.onnx_io.calls import arguments, check_call
from gecompiler.ir.onnx_io.constant_op import constant_of_op
from gecompiler.ir.onnx_io.data import read_sparse, read_tensor
from gecompiler.ir.onnx_io.frame import Frame
from gecompiler.ir.onnx_io.functions import Functions, title
from gecompiler.ir.onnx_io.order import (
    free_values,
    graph_definitions,
    node_title,
    ordered,
    unique_definitions,
)
from gecompiler.ir.onnx_io.places import node_info, node_places
from gecompiler.ir.onnx_io.schema import domain_of
from gecompiler.ir.onnx_io.text import one_line
from gecompiler.ir.onnx_io.types import value_type
from gecompiler.ir.op import NO_ATTRS, Attr, Op, OpInfo
from gecompiler.ir.scope_inference import Place
from gecompiler.ir.types import TensorType, ValueType

Warn = Callable[[str, str, str], None]


class GraphReader:
    """Fills graphs from protos. ``folder`` is where external data lies."""

    def __init__(
        self, functions: Functions, opsets: Mapping[str, int], folder: Path | None, warn: Warn
    ) -> None:
        self._functions = functions
        self._opsets = opsets
        self._folder = folder
        self._warn = warn
        self._calls: set[tuple[int, str]] = set()

    def fill(self, proto: GraphProto, frame: Frame) -> None:
        """Adds everything in ``proto`` to the frame's graph."""
        frame.reserved = frozenset(unique_definitions(graph_definitions(proto), frame.where))
        frame.reserved_ops = frozenset(n.name for n in proto.node if n.name)
        for value in (*proto.value_info, *proto.output):
            if value.name not in frame.types or value.type.WhichOneof("value"):
                frame.types[value.name] = _stated(value, frame)
        if frame.nesting:
            self._body_values(proto, frame)
        else:
            self._model_values(proto, frame)
        self._nodes(proto.node, frame)
        frame.graph.set_outputs(self._outputs(proto, frame))

    # ---------------------------------------------------------------- values

    def _model_values(self, proto: GraphProto, frame: Frame) -> None:
        """Inputs and constants of a model; an initializer that is also an input is a constant."""
        stored = self._stored(proto, frame)
        for value in proto.input:
            stated = _stated(value, frame)
            constant = stored.get(value.name)
            if constant is not None:
                _check_agreement(value.name, stated, constant.type, frame.where)
                continue
            if stated is None:
                raise ModelError(
                    "an input has no type",
                    where=f"{frame.where}, input {value.name!r}",
                    hint="the exporter must state element type and rank of every input",
                )
            frame.graph.add_input(frame.define(value.name), stated)
        self._add_constants(stored, frame)

    def _body_values(self, proto: GraphProto, frame: Frame) -> None:
        """Inputs and constants of a subgraph, whose op gives every input a value."""
        stored = self._stored(proto, frame)
        for value in proto.input:
            stored.pop(value.name, None)
            stated = _stated(value, frame)
            frame.graph.add_input(frame.define(value.name), stated)
        self._add_constants(stored, frame)

    def _stored(self, proto: GraphProto, frame: Frame) -> dict[str, Constant]:
        stored = {
            t.name: read_tensor(t, t.name, self._folder, frame.where, frame.large.get(index))
            for index, t in enumerate(proto.initializer)
        }
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            stored[name] = read_sparse(sparse, name, frame.where)
        return stored

    def _add_constants(self, stored: Mapping[str, Constant], frame: Frame) -> None:
        for name, constant in stored.items():
            self._add_constant(name, constant, frame)

    def _add_constant(self, name: str, constant: Constant, frame: Frame) -> None:
        value = frame.graph.add_constant(frame.define(name), constant)
        frame.constants.add(value)

    def _outputs(self, proto: GraphProto, frame: Frame) -> list[str]:
        """The output values. One that is named twice is copied, since a Graph has each once."""
        found: dict[str, None] = {}
        for output in proto.output:
            value = self._output(output.name, frame)
            if value in found:
                copy = frame.fresh_value(f"{value}_copy")
                self._copy(value, copy, frame, OpInfo(sources=frame.sources))
                if not frame.nesting:
                    self._warn(
                        "output-twice",
                        f"{frame.where}: output {value!r} is named twice; the second is {copy!r}",
                        "give every output a name of its own",
                    )
                value = copy
            found[value] = None
        return list(found)

    def _output(self, name: str, frame: Frame) -> str:
        found = frame.names.get(name)
        if not found:
            raise ModelError(
                f"output {name!r} is made by nothing",
                where=frame.where,
                hint="every output is an input, an initializer or made by a node",
            )
        return found

    # ---------------------------------------------------------------- nodes

    def _nodes(self, nodes: Sequence[NodeProto], frame: Frame) -> None:
        nodes = list(nodes)
        order, in_order = ordered(nodes, frame.where)
        if not in_order:
            self._warn(
                "nodes-out-of-order",
                f"{frame.where}: nodes stand before those they read; they were put in order",
                "ONNX asks for producers first; some tools refuse such a file",
            )
        places = node_places([nodes[i] for i in order], frame)
        for index, place in zip(order, places, strict=True):
            self._node(nodes[index], index, frame, place)

    def _node(self, node: NodeProto, index: int, frame: Frame, place: Place) -> None:
        function = self._functions.find(node)
        if function is not None:
            self._call(node, index, function, frame, place)
            return
        name = frame.op_name(node.name, node.op_type, index)
        reader = node_title(node, index)
        attrs = self._attrs(node, name, reader, frame) if node.attribute else NO_ATTRS
        domain = domain_of(node.domain)
        if node.op_type == "Constant" and not domain and len(node.output) == 1:
            where = f"{frame.where}, {reader}"
            self._add_constant(node.output[0], constant_of_op(attrs, where), frame)
            return
        names = frame.names
        inputs = tuple([names[v] if v in names else frame.resolve(v, reader) for v in node.input])
        types = [frame.types.get(v) for v in node.output]
        outputs = tuple([frame.define(v) for v in node.output])
        info = node_info(node, name, frame, place)
        frame.graph.add_op(Op(name, node.op_type, inputs, outputs, attrs, domain, info), types)

    def _attrs(self, node: NodeProto, name: str, reader: str, frame: Frame) -> dict[str, Attr]:
        found: dict[str, Attr] = {}
        where = f"{frame.where}, {reader}"
        for proto in node.attribute:
            if proto.name in found:
                raise ModelError(f"has the attribute {proto.name!r} twice", where=where)
            bound = frame.argument(proto, reader)
            if bound is None:
                continue
            given, owner = bound

            def body(attr: str, graph: GraphProto, owner: Frame = owner) -> Graph:
                if owner.graph is not frame.graph:
                    raise ModelError(
                        f"attribute {attr!r} passes a subgraph into another one",
                        where=where,
                        hint="inline the model's functions first: onnx.inliner",
                    )
                return self._body(graph, f"{name}.{attr}", f"{where}, body {attr!r}", owner)

            found[proto.name] = read_attr(given, body, self._folder, where)
        return found

    def _body(self, proto: GraphProto, name: str, where: str, around: Frame) -> Graph:
        """The graph of a subgraph. What it takes from around it becomes its ``outer`` values."""
        body = Graph(one_line(proto.name) or name, self._opsets)
        frame = Frame(
            body,
            where,
            arguments=around.arguments,
            scope=around.scope,
            sources=around.sources,
            around=f"{around.around}{name}.",
            depth=around.depth + 1,
            nesting=around.nesting + 1,
        )
        for value in free_values(proto):
            outer = around.names.get(value)
            if outer is None:
                continue
            if outer and not body.has_value(outer):
                body.add_outer(outer, around.graph.type(outer))
                if outer in around.constants:
                    frame.constants.add(outer)
            frame.names[value] = outer
        self.fill(proto, frame)
        return body

    # ---------------------------------------------------------------- functions

    def _call(
        self, node: NodeProto, index: int, function: FunctionProto, frame: Frame, place: Place
    ) -> None:
        """Puts the function's body in the place of the node that calls it."""
        reader = node_title(node, index)
        check_call(node, function, f"{frame.where}, {reader}")
        self._functions.check_body(function, self._opsets)
        name = self._call_name(node, index, frame)
        given = [frame.resolve(v, reader) for v in node.input]
        given += [""] * (len(function.input) - len(given))
        inner = Frame(
            frame.graph,
            f"{frame.where}, {reader}, function {title(function)!r}",
            names=dict(zip(function.input, given, strict=True)),
            constants=frame.constants,
            prefix=f"{name}/",
            scope=place.scope or frame.scope,
            sources=frame.sources or (node.name or name,),
            reserved=frame.reserved,
            reserved_ops=frame.reserved_ops,
            depth=frame.depth + 1,
            nesting=frame.nesting,
        )
        inner.arguments = arguments(node, reader, function, frame, inner)
        made = {v for n in function.node for v in n.output}
        copies: list[tuple[str, str]] = []
        for formal, actual in zip(function.output, node.output, strict=False):
            if actual and formal in made and formal not in inner.wanted:
                inner.types[formal] = frame.types.get(actual)
                inner.wanted[formal] = frame.define(actual)
            elif actual:
                copies.append((formal, actual))
        self._nodes(function.node, inner)
        for formal, actual in copies:
            source = self._output(formal, inner)
            self._copy(source, frame.define(actual), inner, OpInfo(inner.scope, place.group))

    def _call_name(self, node: NodeProto, index: int, frame: Frame) -> str:
        """A name for the call that no other call in the graph has."""
        name = frame.op_name(node.name, node.op_type, index)
        count = 0
        while (id(frame.graph), name) in self._calls:
            count += 1
            name = frame.op_name("", node.op_type, index) + f"_{count}" * (count > 1)
        self._calls.add((id(frame.graph), name))
        return name

    def _copy(self, source: str, target: str, frame: Frame, info: OpInfo) -> None:
        name = frame.op_name("", "Identity", len(frame.graph))
        type_ = frame.graph.type(source)
        frame.graph.add_op(Op(name, "Identity", (source,), (target,), info=info), [type_])


def _stated(value: ValueInfoProto, frame: Frame) -> ValueType:
    return value_type(value.type, value.name, frame.where, frame.around)


def _check_agreement(name: str, stated: object, actual: TensorType, where: str) -> None:
    """ModelError when an initializer is not of the type that the input of its name states."""
    if not isinstance(stated, TensorType):
        return
    pairs = zip(stated.shape or (), actual.sizes, strict=False)
    ranks_differ = stated.shape is not None and len(stated.shape) != len(actual.sizes)
    if (
        stated.dtype is not actual.dtype
        or ranks_differ
        or any(isinstance(a, int) and a != b for a, b in pairs)
    ):
        raise ModelError(
            f"the input is declared {stated}, its initializer is {actual}",
            where=f"{where}, input {name!r}",
            hint="the two must agree",
        )
