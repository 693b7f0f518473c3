"""Rewriting the bodies of ops."""

from __future__ import annotations

from collections.abc import Callable

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr


def rewrite_bodies(graph: Graph, rewrite: Callable[[Graph], int]) -> int:
    """Runs ``rewrite`` on a copy of every body; one that changed takes the place of the body.

    ``rewrite`` returns the number of its changes; so does this, for all bodies together. Bodies
    within bodies are for ``rewrite`` to see to.
    """
    total = 0
    for op in graph.ops:
        if not op.attrs or not op.bodies:
            continue
        count, attrs = 0, dict(op.attrs)
        for key, value in op.attrs.items():
            attrs[key], found = _rewritten(value, rewrite)
            count += found
        if count:
            graph.replace_op(op.name, op.with_(attrs=attrs))
            total += count
    return total


def _rewritten(value: Attr, rewrite: Callable[[Graph], int]) -> tuple[Attr, int]:
    if isinstance(value, Graph):
        body = value.copy()
        count = rewrite(body)
        return (body, count) if count else (value, 0)
    if isinstance(value, tuple) and any(isinstance(part, Graph) for part in value):
        parts = [_rewritten(part, rewrite) for part in value]
        bodies = tuple(body for body, _ in parts if isinstance(body, Graph))
        return bodies, sum(count for _, count in parts)
    return value, 0
