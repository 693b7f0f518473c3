"""Bodies of If, Loop and Scan: inferred with the types around them, on copies.

Bodies are shared by copies of a graph, so each is copied before its types are set, and the op
gets the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.arrays import SymbolicArray
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.onnx import Outcome
from gecompiler.ir.infer.scope import Scope
from gecompiler.ir.types import TensorType, ValueType

Walk = Callable[[Scope], None]
"""Infers all ops of a scope; given by the front, which these rules lie below."""


@dataclass(frozen=True)
class Inferred:
    """A body with its types set, and what leaves it."""

    body: Graph
    types: tuple[ValueType, ...]
    values: tuple[SymbolicArray | None, ...]


@dataclass(frozen=True)
class Control:
    """What is found of an op with bodies: its outputs, and the bodies by attribute."""

    outcomes: list[Outcome]
    bodies: dict[str, Graph]
    values: tuple[SymbolicArray | None, ...] = ()


def infer_body(node: Node, walk: Walk, source: Graph, inputs: Sequence[ValueType]) -> Inferred:
    """Infers a copy of a body; what it assumes of sizes stays within it."""
    scope = node.scope
    body = source.copy()
    inner = Scope(body, scope.shared, scope)
    for name, type_ in zip(body.inputs, inputs, strict=False):
        if type_ is not None:
            body.set_type(name, type_)
    for name in body.outer:
        if scope.graph.has_value(name):
            body.set_type(name, scope.graph.type(name))
            found = scope.values.get(name)
            if found is not None:
                inner.values[name] = found
    before = dict(scope.shared.assumptions)
    try:
        walk(inner)
    finally:
        scope.shared.assumptions = before
    types = tuple(body.type(v) for v in body.outputs)
    return Inferred(body, types, tuple(inner.values.get(v) for v in body.outputs))


def body_of(node: Node, name: str, outputs: int | None = None) -> Graph:
    """The body that an attribute holds; a ModelError unless it has so many outputs."""
    body = node.op.attrs.get(name)
    if not isinstance(body, Graph):
        node.fail(f"attribute {name!r} must be a graph")
    if outputs is not None and len(body.outputs) != outputs:
        node.fail(f"{name} has {len(body.outputs)} outputs where {outputs} are needed")
    return body


def outcome_of(type_: ValueType) -> Outcome:
    """A type as the outcome of an output."""
    if isinstance(type_, TensorType):
        return type_.dtype, type_.shape
    return (None, None) if type_ is None else type_
