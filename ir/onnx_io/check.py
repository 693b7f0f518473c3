"""What onnx itself says of a model: its checker, and strict type and shape inference.

Both look at a copy made from the imported graph, in which weights are inputs, so that neither
a missing data file nor the size of the model matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.contrib import CONTRIB_DOMAIN, is_contrib
from gecompiler.ir.onnx_io.data import SparseData, tensor_type
from gecompiler.ir.onnx_io.exporter import SMALL_ELEMENTS
from gecompiler.ir.onnx_io.functions import every_node
from gecompiler.ir.onnx_io.model import build_model, ops_named
from gecompiler.ir.onnx_io.order import subgraphs
from gecompiler.ir.onnx_io.sandbox import verdict
from gecompiler.ir.onnx_io.schema import body_defaults, schema
from gecompiler.ir.onnx_io.types import type_text, value_info
from gecompiler.ir.onnx_io.write_data import write_tensor
from gecompiler.ir.op import Op


def check_graph(graph: Graph, where: str) -> None:
    """ModelError, naming the node, for what onnx's checker or strict inference refuses."""
    found = verdict(_skeleton(graph))
    if found is not None:
        raise _refusal(found.reason, graph, found.model, where)


# -------------------------------------------------------------------- the copy


class _Weights:
    """Makes inputs of the model out of all constants that cannot be shapes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.inputs: list[ValueInfoProto] = []

    def write(self, proto: GraphProto, name: str, constant: Constant) -> str:
        """The `ConstantWriter`."""
        small = constant.small_array(SMALL_ELEMENTS)
        if small is not None and not isinstance(constant.source, SparseData):
            write_tensor(proto.initializer.add(), name, constant)
            return name
        if name not in self._graph.constants:
            name = f"{name} (weight {len(self.inputs)} of a body)"
        self.inputs.append(value_info(name, constant.type))
        return name


def _skeleton(graph: Graph) -> ModelProto:
    weights = _Weights(graph)
    model = build_model(graph, weights.write)
    model.graph.input.extend(weights.inputs)
    for _, node in every_node(model.graph.node):
        _as_contrib(model, node, graph.opsets)
        # onnx infers through the body of an op that has one, and forgets defaults on the way
        defaults = body_defaults(node.op_type, node.domain, graph.opsets.get(node.domain, 0))
        given = {a.name for a in node.attribute} if defaults else ()
        node.attribute.extend(a for a in defaults if a.name not in given)
    return model


def _as_contrib(model: ModelProto, node: NodeProto, opsets: Mapping[str, int]) -> None:
    """Moves an op that onnxruntime put into ONNX's domain to its own, where onnx lets it pass."""
    version = opsets.get("", 0)
    if node.domain or not is_contrib("", node.op_type) or schema(node.op_type, "", version):
        return
    node.domain = CONTRIB_DOMAIN
    if all(entry.domain != CONTRIB_DOMAIN for entry in model.opset_import):
        model.opset_import.append(OperatorSetIdProto(domain=CONTRIB_DOMAIN, version=1))


def _every_proto(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        if node.attribute:
            for body in subgraphs(node):
                yield from _every_proto(body)


# -------------------------------------------------------------------- messages

_INFERENCE = re.compile(r"\(op_type:(?P<op>[^,()]*)(?:, node name: (?P<name>.*?))?\): ")
_CHECKER = re.compile(r"Bad node spec for node\. Name: (?P<name>.*) OpType: (?P<op>\S+)")
_TAGS = re.compile(r"\[\w+Error\] (Inference error\(s\): )?")
_TYPE = re.compile(r"(\w+) typestr: \S+, has unsupported type: (?:tensor\((\w+)\)|(\S+))")


def _refusal(text: str, graph: Graph, model: ModelProto, where: str) -> ModelError:
    """The error in our words, with the node and what it is given."""
    op = _op_at_fault(text, graph)
    reason = _reason(text)
    if op is None:
        return ModelError(f"onnx refuses the model: {reason}", where=where, hint=_HINT)
    types = _types_of_values(model)
    given = ", ".join(f"{v!r} {types.get(v, '?')}" if v else "none" for v in op.inputs)
    unsupported = _TYPE.search(text)
    hint = _HINT
    if unsupported is not None:
        formal, element, other = unsupported.groups()
        reason = f"input {formal} is {element or other}, which {op.op_type} does not take"
        if element == "bool" and op.op_type in ("Add", "Sub", "Mul"):
            hint = "a boolean mask is applied by Where(mask, x, -inf), not by arithmetic"
    return ModelError(
        f"{reason}; inputs: {given or 'none'}",
        where=f"{where}, node {op.name!r} ({op.kind})",
        hint=hint,
    )


_HINT = "the exporter wrote a node that ONNX does not allow; correct it, or export again"


def _op_at_fault(text: str, graph: Graph) -> Op | None:
    """The innermost op of ours that the message names."""
    found = [(m["name"], m["op"]) for m in _CHECKER.finditer(text)]
    found += [(m["name"], m["op"]) for m in _first_chain(text)]
    for name, op_type in found:
        for _, op in ops_named(graph, name or ""):
            if op.op_type == op_type:
                return op
    return None


def _first_chain(text: str) -> list[re.Match[str]]:
    """The nodes of the first error, from the innermost outwards."""
    return list(reversed(list(_INFERENCE.finditer(text.partition("\n")[0]))))


def _reason(text: str) -> str:
    line = next((part for part in text.splitlines() if part.strip()), "no reason given")
    chain = _first_chain(line)
    if chain:
        line = line[chain[0].end() :]
    return _TAGS.sub("", line).strip().rstrip(".")


def _types_of_values(model: ModelProto) -> dict[str, str]:
    """The types that the model states, as text."""
    found: dict[str, str] = {}
    for graph in _every_proto(model.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            found.setdefault(value.name, type_text(value.type))
        for tensor in graph.initializer:
            found.setdefault(tensor.name, str(tensor_type(tensor, tensor.name)))
    return found
