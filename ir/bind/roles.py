"""Which symbols of a model's inputs are batch sizes and which are sequence lengths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gecompiler.ir.dims import Dim, Expr, Symbol, as_atom, symbols
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import Shape, TensorType

_POSITIONAL = re.compile(r"pos(ition)?s?(_|$|ids)|time|step|cache|ind(ex|ices)", re.IGNORECASE)
"""Names of rank-1 inputs whose only axis is no batch."""

_MASK = re.compile("mask", re.IGNORECASE)
_CACHE = re.compile(r"past|cache|present|(^|[._/])[kv]\d+$", re.IGNORECASE)


def shaped_inputs(graph: Graph) -> dict[str, TensorType]:
    """The inputs that are tensors of known rank."""
    found = {name: graph.tensor(name) for name in graph.inputs}
    return {n: t for n, t in found.items() if t is not None and t.shape is not None}


def lone_symbol(dim: Dim) -> str | None:
    """The symbol that a dim is, or None."""
    atom = as_atom(dim)
    return atom.name if isinstance(atom, Symbol) else None


def batch_symbols(graph: Graph) -> dict[str, str]:
    """Symbols that lead inputs, each with an input that it leads.

    A symbol that some input has further back (``positions[seq]`` beside ``ids[batch, seq]``) is
    no batch, nor is the only axis of an input named like positions.
    """
    shapes = {name: t.shape or () for name, t in shaped_inputs(graph).items()}
    behind = {s for shape in shapes.values() for dim in shape[1:] for s in symbols(dim)}
    found: dict[str, str] = {}
    for name, shape in shapes.items():
        if not shape or (len(shape) == 1 and _POSITIONAL.search(name)):
            continue
        leading = symbols(shape[0])
        if len(leading) == 1 and leading.isdisjoint(behind):
            found.setdefault(min(leading), name)
    return found


def token_inputs(graph: Graph) -> dict[str, Shape]:
    """The inputs whose second axis is the sequence.

    Integer inputs of rank 2, such as ``input_ids`` and ``token_type_ids``; masks too, unless
    there is a cache, whose length a mask covers besides. Without any integer input of rank 2:
    the inputs of rank 3, embeddings then.
    """
    shapes = shaped_inputs(graph)
    cached = any(_CACHE.search(name) for name in shapes)
    tokens = {
        n: t.shape or ()
        for n, t in shapes.items()
        if t.rank == 2 and t.dtype.is_integer and not _MASK.search(n) and not _CACHE.search(n)
    }
    if not tokens:
        tokens = {n: t.shape or () for n, t in shapes.items() if t.rank == 3}
        tokens = {n: s for n, s in tokens.items() if not _CACHE.search(n)}
    if not cached:
        masks = ((n, t) for n, t in shapes.items() if t.rank == 2 and _MASK.search(n))
        tokens |= {n: t.shape or () for n, t in masks}
    return tokens


def seq_symbols(graph: Graph) -> dict[str, str]:
    """Symbols that are the second axis of token inputs, each with such an input."""
    leading = batch_symbols(graph)
    found: dict[str, str] = {}
    for name, shape in token_inputs(graph).items():
        second = lone_symbol(shape[1])
        if second is not None and second not in leading:
            found.setdefault(second, name)
    return found


def cache_symbols(graph: Graph) -> dict[str, str]:
    """Symbols that are the length of a KV cache, each with a cache input: (batch, G, length, D).

    In a decode step the token inputs are one token long; the sequence is what the cache holds.
    """
    leading = batch_symbols(graph)
    found: dict[str, str] = {}
    for name, type_ in shaped_inputs(graph).items():
        if not _CACHE.search(name) or type_.shape is None or len(type_.shape) < 3:
            continue
        for dim in type_.shape[1:]:
            length = lone_symbol(dim)
            if length is not None and length not in leading:
                found.setdefault(length, name)
    return found


def input_symbols(graph: Graph) -> dict[str, tuple[str, int]]:
    """Every symbol of the inputs, in order, with the first input and axis that it occurs in."""
    found: dict[str, tuple[str, int]] = {}
    for name, type_ in shaped_inputs(graph).items():
        for axis, dim in enumerate(type_.shape or ()):
            for symbol in _in_order(dim):
                found.setdefault(symbol, (name, axis))
    return found


def _in_order(dim: Dim) -> Iterable[str]:
    return sorted(symbols(dim)) if isinstance(dim, Expr) else ()
