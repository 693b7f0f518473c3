"""Takes out what nothing uses any more."""

from __future__ import annotations

from collections.abc import Iterable

from gecompiler.ir.graph import Graph
from gecompiler.passes.effects import has_side_effects


def remove_dead(graph: Graph, values: Iterable[str]) -> None:
    """Removes the ops behind ``values`` that have become useless, and their unused constants."""
    outputs = set(graph.outputs)
    stack = list(values)
    while stack:
        value = stack.pop()
        if not graph.has_value(value) or graph.uses(value) or value in outputs:
            continue
        if value in graph.constants:
            graph.remove_constant(value)
            continue
        op = graph.producer(value)
        if op is None or has_side_effects(op):
            continue
        if any(o and (graph.uses(o) or o in outputs) for o in op.outputs):
            continue
        reads = graph.reads(op)
        graph.remove_op(op.name)
        stack += reads


def undo(graph: Graph, ops: int, constants: int) -> None:
    """Removes what was added since there were that many ops and constants, none of it used."""
    for op in reversed(graph.ops[ops:]):
        graph.remove_op(op.name)
    for name in list(graph.constants)[constants:]:
        graph.remove_constant(name)
