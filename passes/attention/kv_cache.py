"""Keys and values that outlive a run: present = update(past)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Op
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.operands import Link

_VIEWS = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast", "Expand", "Gather")
MAX_STEPS = 8

_UPDATES = {"Concat": True, "ScatterND": False, "ScatterElements": False, "TensorScatter": False}
"""Ops that put new keys into a cache: whether it grows by them (else they replace old ones)."""


@dataclass(frozen=True, slots=True)
class Cache:
    """``output`` (a model output) is ``input`` (a model input) with new entries."""

    input: str
    output: str
    axis: int | None


def cache_of(e: Elements, links: Sequence[Link]) -> Cache | None:
    """The cache that K or V is read from, if it is one."""
    graph = e.graph
    for link in links:
        op = graph.producer(link.value)
        if op is None or op.domain or op.op_type not in _UPDATES:
            continue
        past, present = _input(graph, op.inputs[0]), _output(graph, link.value)
        if past is None or present is None:
            continue
        return Cache(past, present, _axis(e, op))
    return None


def caches_of_op(e: Elements, op: Op) -> list[Cache]:
    """The caches of an op that takes pasts and hands out presents."""
    found: list[Cache] = []
    first, axis = _PASTS.get(op.kind, (0, 0))
    pasts = op.inputs[first : first + 2] if first else ()
    for past, present in zip(pasts, op.outputs[1:3], strict=False):
        source = _input(e.graph, past) if past else None
        result = _output(e.graph, present) if present else None
        if source is not None and result is not None:
            same = e.shape(past) == e.shape(present)
            found.append(Cache(source, result, None if same else axis))
    return found


_PASTS: Mapping[str, tuple[int, int]] = {
    "Attention": (4, 2),
    "com.microsoft.Attention": (4, 3),
    "com.microsoft.DecoderMaskedMultiHeadAttention": (5, 2),
    "com.microsoft.GroupQueryAttention": (3, 2),
    "com.microsoft.MultiHeadAttention": (6, 2),
}
"""The first past among the inputs of an op, and the axis along which its cache grows.

The presents are the outputs after the first.
"""


def _axis(e: Elements, op: Op) -> int | None:
    shape = e.shape(op.outputs[0])
    grows = _UPDATES[op.op_type] and shape is not None
    return op.attr("axis", 0) % len(shape) if grows and shape is not None else None


def _input(graph: Graph, value: str) -> str | None:
    """The model input behind a value, by way of views."""
    for _ in range(MAX_STEPS):
        if value in graph.inputs:
            return value
        op = graph.producer(value)
        if op is None or not op.is_(*_VIEWS):
            return None
        value = op.inputs[0]
    return None


def _output(graph: Graph, value: str) -> str | None:
    """The model output that a value is, itself or by way of one view."""
    if graph.is_output(value):
        return value
    for op in graph.users(value):
        if op.is_(*_VIEWS) and graph.is_output(op.outputs[0]):
            return op.outputs[0]
    return None


def declare_states(graph: Graph, caches: Iterable[Cache]) -> None:
    """Declares the caches as state of the graph, beside what is declared already."""
    taken = {s.input for s in graph.states} | {s.output for s in graph.states}
    found = list(graph.states)
    for cache in caches:
        same = graph.tensor(cache.input), graph.tensor(cache.output)
        fits = (
            same[0] and same[1] and same[0].dtype is same[1].dtype and same[0].rank == same[1].rank
        )
        if fits and cache.input not in taken and cache.output not in taken:
            found.append(State(cache.input, cache.output, cache.axis))
            taken |= {cache.input, cache.output}
    if len(found) > len(graph.states):
        graph.set_states(found)
