"""A cheap fingerprint of a graph's structure, to tell whether a pass changed it.

Covers ops (names, types, operands, attributes, info), inputs, outputs, constants and order of
control; not the inferred types of values, which are facts about the graph and no part of it.
Constants are compared as objects, hence only within one process. O(size of the graph).
"""

from __future__ import annotations

from collections.abc import Iterator

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op


def fingerprint(graph: Graph) -> int:
    """The fingerprint; equal for a graph that nobody touched in between."""
    return hash((tuple(graph.type(v) for v in graph.inputs), _structure(graph)))


def _structure(graph: Graph) -> int:
    """All but the types of inputs, which in a body are inferred as others are."""
    return hash(
        (
            graph.name,
            tuple(sorted(graph.opsets.items())),
            graph.inputs,
            graph.outputs,
            graph.outer,
            graph.controls,
            graph.states,
            tuple((name, id(constant)) for name, constant in graph.constants.items()),
            tuple(_op_parts(op) for op in graph.ops),
        )
    )


def _op_parts(op: Op) -> tuple[object, ...]:
    attrs = tuple(_attrs(op)) if op.attrs else ()
    return (op.name, op.domain, op.op_type, op.inputs, op.outputs, attrs, op.info)


def _attrs(op: Op) -> Iterator[object]:
    for key, value in op.attrs.items():
        if isinstance(value, Graph):
            yield key, _structure(value)
        elif isinstance(value, tuple) and any(isinstance(v, Graph) for v in value):
            yield key, tuple(_structure(v) if isinstance(v, Graph) else id(v) for v in value)
        else:
            yield key, value
