"""How many parts a model may have: what is read costs memory and time for each."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto, ModelProto, NodeProto

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.order import subgraphs

MAX_OPS = 100_000
"""Ops of a model, functions spelled out; ten times those of the largest published exports."""
MAX_VALUES = 400_000
"""Constants, inputs, outputs and stated types."""
MAX_EDGES = 1_000_000
"""Inputs, outputs and attributes of ops."""
MAX_OPERANDS = 10_000
"""Inputs, outputs and attributes of one op: runtimes take time in the square of them."""


def check_counts(model: ModelProto, where: str) -> None:
    """ModelError for more ops, values or edges than a model may have, at every depth.

    Subgraphs may nest as deep as protobuf reads them; the count ends as soon as it is too high.
    """
    counts = {"ops": 0, "values": 0, "inputs, outputs and attributes of ops": 0}
    limits = (MAX_OPS, MAX_VALUES, MAX_EDGES)
    pending: list[GraphProto | Sequence[NodeProto]] = [model.graph]
    pending += [function.node for function in model.functions]
    while pending:
        part = pending.pop()
        if isinstance(part, GraphProto):
            counts["values"] += _values(part)
            part = part.node
        counts["ops"] += len(part)
        if counts["ops"] <= MAX_OPS:
            for node in part:
                edges = len(node.input) + len(node.output) + len(node.attribute)
                if edges > MAX_OPERANDS:
                    what = "inputs, outputs and attributes"
                    raise _too_many(edges, what, MAX_OPERANDS, f"{where}, node {node.name[:80]!r}")
                counts["inputs, outputs and attributes of ops"] += edges
                if node.attribute:
                    pending.extend(subgraphs(node))
        for (what, count), limit in zip(counts.items(), limits, strict=True):
            if count > limit:
                raise _too_many(count, what, limit, where)


def _too_many(count: int, what: str, limit: int, where: str) -> ModelError:
    return ModelError(
        f"there are {count} {what}, more than {limit}",
        where=where,
        hint="compile the model in parts, or export it with fewer repeated layers",
    )


def _values(graph: GraphProto) -> int:
    entries = (graph.input, graph.output, graph.value_info, graph.initializer)
    return sum(map(len, entries)) + len(graph.sparse_initializer)
