"""What was inferred of a graph, kept for as long as nothing in it changes.

Passes infer one after the other, and many leave the graph as it is. Ops, constants and types
never change in place, so that a graph is as it was when it has the same ones. Bodies do change in
place; nothing is kept of graphs with bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import is_
from weakref import WeakKeyDictionary

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.facts import TypeFacts
from gecompiler.ir.op import Op
from gecompiler.ir.types import ValueType


@dataclass(frozen=True)
class _Kept:
    """A graph as it was, and what was learnt of it."""

    ops: tuple[Op, ...]
    edges: tuple[object, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, ValueType]
    facts: TypeFacts


_KEPT: WeakKeyDictionary[Graph, _Kept] = WeakKeyDictionary()


def kept_facts(graph: Graph) -> TypeFacts | None:
    """What was learnt of the graph, if it is as it was then; the caller's own to add to."""
    kept = _KEPT.get(graph)
    if kept is None or not _is_as_it_was(graph, kept):
        return None
    return _own(kept.facts)


def keep_facts(graph: Graph, facts: TypeFacts) -> None:
    """Keeps what was learnt of the graph as it is now."""
    if any(op.attrs and op.bodies for op in graph.ops):
        _KEPT.pop(graph, None)
        return
    constants, types = dict(graph.constants), dict(graph.types)
    _KEPT[graph] = _Kept(graph.ops, _edges(graph), constants, types, _own(facts))


def _own(facts: TypeFacts) -> TypeFacts:
    return replace(facts, values=dict(facts.values), fresh=dict(facts.fresh))


def _edges(graph: Graph) -> tuple[object, ...]:
    return (graph.inputs, graph.outputs, graph.outer, dict(graph.opsets))


def _is_as_it_was(graph: Graph, kept: _Kept) -> bool:
    ops, constants = graph.ops, graph.constants
    return (
        len(ops) == len(kept.ops)
        and all(map(is_, ops, kept.ops))
        and _edges(graph) == kept.edges
        and constants.keys() == kept.constants.keys()
        and all(constant is kept.constants[name] for name, constant in constants.items())
        and dict(graph.types) == kept.types
    )
