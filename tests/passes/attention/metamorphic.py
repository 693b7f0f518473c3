"""Graphs that mean the same and look different."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from gecompiler.ir import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType, ValueType

COMMUTATIVE = ("Add", "Mul", "And", "Or", "Equal", "Max", "Min")


def rebuilt(graph: Graph, ops: Iterable[Op], names: Mapping[str, str] | None = None) -> Graph:
    """A new graph of these ops; ``names`` gives values new names."""
    table = names or {}
    twin = Graph(graph.name, graph.opsets)
    for name in graph.inputs:
        twin.add_input(table.get(name, name), graph.type(name))
    for name, constant in graph.constants.items():
        twin.add_constant(table.get(name, name), constant)
    added: list[tuple[Op, list[ValueType]]] = []
    for op in ops:
        types = [graph.type(o) if o and graph.has_value(o) else None for o in op.outputs]
        inputs = tuple(table.get(v, v) for v in op.inputs)
        outputs = tuple(table.get(v, v) for v in op.outputs)
        added.append((op.with_(inputs=inputs, outputs=outputs), types))
    twin.add_ops(added)
    twin.set_outputs([table.get(v, v) for v in graph.outputs])
    return twin


def shuffled(graph: Graph, draw: random.Random) -> Graph:
    """The ops inserted in another order."""
    ops = list(graph.ops)
    draw.shuffle(ops)
    return rebuilt(graph, ops)


def renamed(graph: Graph, draw: random.Random) -> Graph:
    """Values and ops with names that say nothing; inputs and outputs keep theirs."""
    fixed = {*graph.inputs, *graph.outputs}
    values = [v for v in graph.values if v not in fixed]
    numbers = list(range(len(values)))
    draw.shuffle(numbers)
    names = {v: f"x{n}" for v, n in zip(values, numbers, strict=True)}
    ops = [op.with_(name=f"op{n}") for n, op in enumerate(graph.ops)]
    return rebuilt(graph, ops, names)


def commuted(graph: Graph, draw: random.Random) -> Graph:
    """Operands of commutative ops swapped."""
    ops = [
        op.with_(inputs=op.inputs[::-1])
        if op.is_(*COMMUTATIVE) and len(op.inputs) == 2 and draw.random() < 0.7
        else op
        for op in graph.ops
    ]
    return rebuilt(graph, ops)


def padded(graph: Graph, draw: random.Random) -> Graph:
    """Identities and casts that do nothing behind some outputs."""
    twin = graph.copy()
    for op in graph.topological():
        for value in op.outputs:
            known = twin.tensor(value) if value else None
            if known is None or twin.is_output(value) or draw.random() > 0.3:
                continue
            users = twin.uses(value)
            if not users:
                continue
            cast = known.dtype in (DType.F32, DType.BOOL, DType.I64) and draw.random() < 0.5
            kind = TensorType(known.dtype, known.shape)
            new = (
                twin.emit("Cast", (value,), kind, attrs={"to": known.dtype.code}, stem="noop")
                if cast
                else twin.emit("Identity", (value,), kind, stem="noop")
            )
            for use in users:
                if use.slot >= 0:
                    twin.set_input(use.op, use.slot, new)
    return twin


def _reshaped(twin: Graph, value: str, kind: TensorType) -> str | None:
    """A reshape to the shape there is."""
    if not kind.shape:
        return None
    same = twin.constant_of("same", np.zeros(len(kind.shape), np.int64))
    return twin.emit("Reshape", (value, same), kind, stem="reshaped")


def _turned_twice(twin: Graph, value: str, kind: TensorType) -> str | None:
    """Two transposes, each the other's inverse."""
    if kind.shape is None or len(kind.shape) < 2 or kind.shape[-1] == 1:
        return None  # between the parts of a softmax it takes the canonical form to see this
    perm = (*range(1, len(kind.shape)), 0)
    back = tuple(perm.index(n) for n in range(len(perm)))
    middle = TensorType(kind.dtype, tuple(kind.shape[p] for p in perm))
    turned = twin.emit("Transpose", (value,), middle, attrs={"perm": perm}, stem="turned")
    return twin.emit("Transpose", (turned,), kind, attrs={"perm": back}, stem="back")


def _dropped(twin: Graph, value: str, kind: TensorType) -> str | None:
    """A Dropout at inference."""
    return twin.emit("Dropout", (value,), kind, stem="kept") if kind.dtype is DType.F32 else None


_DETOURS = (_reshaped, _turned_twice, _dropped)


def rerouted(graph: Graph, draw: random.Random) -> Graph:
    """Views that come to nothing, and dropouts, behind some outputs."""
    twin = graph.copy()
    for op in graph.topological():
        for value in op.outputs:
            known = twin.tensor(value) if value else None
            if known is None or twin.is_output(value) or draw.random() > 0.25:
                continue
            users = [use for use in twin.uses(value) if use.slot >= 0]
            new = draw.choice(_DETOURS)(twin, value, known) if users else None
            for use in users:
                if new is not None:
                    twin.set_input(use.op, use.slot, new)
    return twin


def computed(graph: Graph, draw: random.Random) -> Graph:
    """Numbers that were stored, worked out by ops instead."""
    twin = graph.copy()
    for name, constant in graph.constants.items():
        kind = constant.type
        uses = [use for use in twin.uses(name) if use.slot >= 0]
        if kind.dtype is not DType.F32 or constant.size != 1 or draw.random() < 0.3:
            continue
        one = twin.constant_of("one", np.ones((), np.float32))
        new = twin.emit("Mul", (one, name), kind, stem="worked_out")
        for use in uses:
            twin.set_input(use.op, use.slot, new)
    return twin


TRANSFORMATIONS: tuple[Callable[[Graph, random.Random], Graph], ...] = (
    shuffled,
    renamed,
    commuted,
    padded,
    rerouted,
    computed,
)
