"""Vectors that an exporter merged become parameters of their own again.

Exporters keep one copy of initializers that are equal: at the time of export all biases are
zeros and all norms' scales ones. Training would move them together. Matrices that several ops
read are tied on purpose (an embedding and the output's projection) and stay so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gecompiler.ir.graph import Graph
from gecompiler.passes.training.parameters import parameters


def untied(graph: Graph, patterns: Sequence[str] = ()) -> Graph:
    """The graph, or a copy in which each op has its own of a vector that several ops train.

    The first keeps the name; the others are named ``<name>/1`` and so on.
    """
    shared = [
        name
        for name in parameters(graph, patterns)
        if _is_vector(graph, name) and len(graph.uses(name)) > 1
    ]
    if not shared:
        return graph
    twin = graph.copy()
    for name in shared:
        for number, use in enumerate(twin.uses(name)[1:], 1):
            if use.slot < 0:
                continue
            own = replace(twin.constants[name])  # another constant, with the same data
            copy = twin.add_constant(twin.fresh(f"{name}/{number}"), own)
            twin.set_input(use.op, use.slot, copy)
    return twin


def _is_vector(graph: Graph, name: str) -> bool:
    return sum(1 for size in graph.constants[name].type.sizes if size != 1) <= 1
