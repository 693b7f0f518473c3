"""From Graph to GraphProto."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnx import GraphProto, NodeProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.attrs import write_attr
from gecompiler.ir.onnx_io.places import GROUP_KEY, LABEL_KEY, SCOPE_KEY
from gecompiler.ir.onnx_io.schema import attribute_kinds
from gecompiler.ir.onnx_io.types import value_info
from gecompiler.ir.op import Op
from gecompiler.ir.scope import group_of, scope_of_name

ConstantWriter = Callable[[GraphProto, str, Constant], str]
"""Adds a constant to a GraphProto, or elsewhere, and returns the name it has there."""


@dataclass
class _Names:
    """Names of a graph's values in the file. Those of bodies must differ from all around them."""

    around: tuple[frozenset[str], ...] = ()
    file: dict[str, str] = field(default_factory=dict)

    def claim(self, graph: Graph, outer: _Names | None) -> None:
        for value in graph.outer:
            self.file[value] = outer.file[value] if outer else value
        outers = set(graph.outer)
        for value in graph.values:
            if value not in outers:
                self.file[value] = self._free(graph, value)

    def _free(self, graph: Graph, value: str) -> str:
        name, count = value, 0
        while self._taken(name) or (count and graph.has_value(name)):
            count += 1
            name = f"{value}_{count}"
        return name

    def _taken(self, name: str) -> bool:
        return any(name in names for names in self.around)

    @cached_property
    def visible(self) -> tuple[frozenset[str], ...]:
        """Names that a body must not take; to be asked for once all values have theirs."""
        return (*self.around, frozenset(self.file.values()))

    def unused(self, stem: str) -> str:
        """A name for one more value, that no value here or around has."""
        local = set(self.file.values())
        name, count = stem, 0
        while name in local or self._taken(name):
            count += 1
            name = f"{stem}_{count}"
        self.file[f"\0{name}"] = name
        return name


class GraphWriter:
    """Writes graphs and, through their ops' attributes, bodies."""

    def __init__(self, opsets: Mapping[str, int], where: str, constant: ConstantWriter) -> None:
        self._opsets = opsets
        self._where = where
        self._constant = constant

    def write(self, graph: Graph, proto: GraphProto, outer: _Names | None = None) -> None:
        """Fills ``proto``: nodes in topological order, the type of every value that has one."""
        proto.name = graph.name
        names = _Names(outer.visible if outer else ())
        names.claim(graph, outer)
        for value in graph.inputs:
            proto.input.append(value_info(names.file[value], graph.type(value)))
        for value, constant in graph.constants.items():
            names.file[value] = self._constant(proto, names.file[value], constant)
        ops = graph.topological()
        for op in ops:
            self._node(op, names, proto.node.add())
        self._outputs(proto, graph, names)
        outputs = set(graph.outputs)
        proto.value_info.extend(
            value_info(names.file[value], graph.type(value))
            for op in ops
            for value in op.outputs
            if value and value not in outputs and graph.type(value) is not None
        )

    def _outputs(self, proto: GraphProto, graph: Graph, names: _Names) -> None:
        """The outputs. What a body merely passes on from around it goes through an Identity."""
        outers = set(graph.outer)
        for value in graph.outputs:
            name = names.file[value]
            if value in outers:
                name = names.unused(f"{name}_out")
                proto.node.add(op_type="Identity", input=[names.file[value]], output=[name])
            proto.output.append(value_info(name, graph.type(value)))

    def _node(self, op: Op, names: _Names, node: NodeProto) -> None:
        file = names.file
        node.name = op.name
        node.op_type = op.op_type
        if op.domain:
            node.domain = op.domain
        node.input.extend([file[v] if v else "" for v in op.inputs])
        node.output.extend([file[v] if v else "" for v in op.outputs])
        if op.attrs:
            self._attrs(op, names, node)
        _add_info(node, op)

    def _attrs(self, op: Op, names: _Names, node: NodeProto) -> None:
        where = f"{self._where}, op {op.name!r} ({op.kind})"
        kinds = attribute_kinds(op.op_type, op.domain, self._opsets.get(op.domain, 0))

        def body(graph: Graph, proto: GraphProto) -> None:
            self.write(graph, proto, names)

        for key, value in op.attrs.items():
            write_attr(node.attribute.add(), key, value, kinds.get(key), body, where)


def _add_info(node: NodeProto, op: Op) -> None:
    """Keeps what an import of the file could not tell from the node's name."""
    info = op.info
    if info.scope != scope_of_name(op.name):
        node.metadata_props.add(key=SCOPE_KEY, value=info.scope)
    if info.group != group_of(info.scope, op.op_type):
        node.metadata_props.add(key=GROUP_KEY, value=info.group)
    if info.label is not None:
        node.metadata_props.add(key=LABEL_KEY, value=info.label)
