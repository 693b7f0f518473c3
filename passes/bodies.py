"""Rewriting the bodies of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gecompiler.ir.graph import Graph

MAX_DEPTH = 16
"""Bodies within more bodies than this are left as they are."""


def rewrite_all(graph: Graph, rewrite: Callable[[Graph], int], *, lend: bool = False) -> int:
    """Runs ``rewrite`` on a graph and then on the bodies in it, and on those in these.

    Returns the number of changes, as ``rewrite`` does. ``lend``: see `rewrite_bodies`.
    """
    return _rewrite_all(graph, rewrite, lend, 0)


def _rewrite_all(graph: Graph, rewrite: Callable[[Graph], int], lend: bool, depth: int) -> int:
    total = rewrite(graph)
    if depth < MAX_DEPTH:
        inner = partial(_rewrite_all, rewrite=rewrite, lend=lend, depth=depth + 1)
        total += rewrite_bodies(graph, inner, lend=lend)
    return total


def rewrite_bodies(graph: Graph, rewrite: Callable[[Graph], int], *, lend: bool = False) -> int:
    """Runs ``rewrite`` on a copy of every body; one that changed takes the place of the body.

    ``rewrite`` returns the number of its changes; so does this, for all bodies together. Bodies
    within bodies are for ``rewrite`` to see to. With ``lend`` it sees constants of ``graph`` that
    a body takes as constants of the body, for as long as it runs.
    """
    total = 0
    for op in graph.ops:
        if not op.attrs or not op.bodies:
            continue
        counts: list[int] = []
        made = op.with_bodies(partial(_rewritten, graph, rewrite=rewrite, lend=lend, counts=counts))
        if sum(counts):
            graph.replace_op(op.name, made)
            total += sum(counts)
    return total


def _rewritten(
    graph: Graph, body: Graph, rewrite: Callable[[Graph], int], lend: bool, counts: list[int]
) -> Graph:
    """The body after ``rewrite``, whose changes ``counts`` learns; the body itself without any."""
    twin = body.copy()
    lent = _lend(graph, twin) if lend else {}
    count = rewrite(twin)
    counts.append(count)
    if not count:
        return body
    _take_back(twin, lent)
    _leave_unused(twin)
    return twin


def _lend(graph: Graph, body: Graph) -> dict[str, str]:
    """Constants of the graph in the place of the body's outer values: whose each stands for."""
    lent: dict[str, str] = {}
    for outer in body.outer:
        constant = graph.constant(outer)
        if constant is not None:
            name = body.add_constant(body.fresh(outer), constant)
            body.replace_uses(outer, name, outputs=False)
            lent[name] = outer
    return lent


def _take_back(body: Graph, lent: Mapping[str, str]) -> None:
    """The outer values again; one that has become an output stays, as a constant."""
    for name, outer in lent.items():
        if body.constant(name) is None:
            continue
        body.replace_uses(name, outer, outputs=False)
        if not body.is_output(name):
            body.remove_constant(name)


def _leave_unused(body: Graph) -> None:
    """What nothing in the body reads any more is no longer taken from around it."""
    for outer in body.outer:
        if not body.uses(outer) and not body.is_output(outer):
            body.remove_outer(outer)
