"""Printing graphs in the text form; `text` describes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import dim_text
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import NO_INFO, Op, OpInfo
from gecompiler.ir.text.data_print import data_text
from gecompiler.ir.text.lexer import bytes_text, name_text, string_text, word_text
from gecompiler.ir.types import OpaqueType, TensorType, ValueType


def print_graph(graph: Graph, *, max_data_bytes: int | None = None) -> str:
    """The graph as text, ops in topological order (as they are where there is a cycle).

    ``gecompiler.ir.parse`` gives an equal graph back. With ``max_data_bytes``, constants whose
    data is larger are printed as absent, for people to read.
    """
    return "\n".join([*_Printer(max_data_bytes).graph(graph, None), ""])


class _Printer:
    def __init__(self, limit: int | None) -> None:
        self.limit = limit

    def graph(self, graph: Graph, around: Graph | None) -> Iterator[str]:
        """The lines of a graph; a body has the opsets of the graph around it."""
        name = "" if graph.name == "graph" else f" {name_text('@', graph.name)}"
        inherits = around is not None and around.opsets == graph.opsets
        yield f"graph{name}{'' if inherits else f' ({_opsets_text(graph.opsets)})'} {{"
        for line in self._statements(graph):
            yield f"  {line}"
        yield "}"

    def _statements(self, graph: Graph) -> Iterator[str]:
        for key, value in graph.metadata.items():
            yield f"metadata {string_text(key)} = {string_text(value)}"
        for kind, names in (("input", graph.inputs), ("outer", graph.outer)):
            for name in names:
                yield f"{kind} {_typed(name, graph.type(name))}"
        for name, constant in graph.constants.items():
            yield f"const {_typed(name, constant.type)} = {self._data(constant)}"
        for op in _in_order(graph):
            yield from self._op(graph, op).split("\n")
        for before, after in graph.controls:
            yield f"control {name_text('@', before)} -> {name_text('@', after)}"
        for state in graph.states:
            axis = "" if state.axis is None else f" axis {state.axis}"
            yield f"state {_value(state.input)} -> {_value(state.output)}{axis}"
        yield f"return {', '.join(map(_value, graph.outputs))}".rstrip()

    def _data(self, constant: Constant) -> str:
        text = data_text(constant, self.limit)
        if constant.data is not None and text == "absent":
            return f"{text} // {constant.data.nbytes} bytes left out"
        return text

    def _op(self, graph: Graph, op: Op) -> str:
        outputs = ", ".join(_typed(v, graph.type(v)) if v else "_" for v in op.outputs)
        inputs = ", ".join(map(_value, op.inputs))
        text = f"{outputs} = " if op.outputs else ""
        text += f"{_kind_text(op)}({inputs})"
        if op.name != next(filter(None, op.outputs), ""):
            text += f" {name_text('@', op.name)}"
        if op.attrs:
            attrs = (f"{word_text(k)} = {self._attr(v, graph)}" for k, v in op.attrs.items())
            text += f" {{{', '.join(attrs)}}}"
        return text if op.info == NO_INFO else f"{text} {_info_text(op.info)}"

    def _attr(self, value: object, graph: Graph) -> str:
        if isinstance(value, tuple):
            return f"[{', '.join(self._attr(v, graph) for v in value)}]"
        if isinstance(value, Graph):
            return "\n".join(self.graph(value, graph))
        if isinstance(value, Constant):
            return f"{_type_text(value.type)} {data_text(value, self.limit)}"
        if isinstance(value, (OpaqueType, TensorType)):
            return _type_text(value)
        return _scalar_text(value)


def _in_order(graph: Graph) -> tuple[Op, ...]:
    try:
        return graph.topological()
    except GraphError:  # a cycle, which whoever prints the graph wants to see
        return graph.ops


def _opsets_text(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{_domain_text(domain)} {version}" for domain, version in opsets.items())


def _domain_text(domain: str) -> str:
    if not domain:
        return "opset"
    return string_text(domain) if domain == "opset" else word_text(domain)


def _kind_text(op: Op) -> str:
    op_type = op.op_type if "." not in op.op_type else ""
    name = word_text(op_type) if op_type else string_text(op.op_type)
    return f"{word_text(op.domain)}.{name}" if op.domain else name


def _value(name: str) -> str:
    return name_text("%", name) if name else "_"


def _typed(name: str, type_: ValueType) -> str:
    return _value(name) if type_ is None else f"{_value(name)}: {_type_text(type_)}"


def _type_text(type_: TensorType | OpaqueType) -> str:
    if isinstance(type_, OpaqueType):
        return f"opaque {string_text(type_.text)} {bytes_text(type_.proto)}"
    sizes = "*" if type_.shape is None else ", ".join(map(dim_text, type_.shape))
    return f"{type_.dtype.short}[{sizes}]"


def _scalar_text(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bytes):
        return bytes_text(value)
    if isinstance(value, str):
        return string_text(value)
    return f"<{type(value).__name__}>"  # no attribute may be this; verify says so


def _float_text(value: float) -> str:
    """The shortest text of the number; ``0.1f`` is the float32 nearest to 0.1."""
    text = repr(float(value))
    if math.isfinite(value):
        with np.errstate(over="ignore"):
            single = np.float32(value)
        if float(single) == value and len(short := f"{single!s}f") < len(text):
            return short
    return text


def _info_text(info: OpInfo) -> str:
    parts = []
    for field in ("scope", "group", "label"):
        text = getattr(info, field)
        if text or (text == "" and field == "label"):
            parts.append(f"{field} {string_text(text)}")
    for field in ("priority", "cube_cores", "vector_cores"):
        number = getattr(info, field)
        if number is not None and (number or field != "priority"):
            parts.append(f"{field} {number}")
    if info.data_sized:
        parts.append("data_sized 1")
    if info.sources:
        parts.append(f"sources [{', '.join(map(string_text, info.sources))}]")
    if info.phase:
        parts.append(f"phase {string_text(info.phase)}")
    return " ".join(parts)
