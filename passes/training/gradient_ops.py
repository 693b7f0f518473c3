"""Gradient of ai.onnx.preview.training: the derivatives that it names are written out.

The op names values of the graph around it: ``y``, and what it depends on, ``xs`` (derivatives
are asked for) and ``zs`` (not). Its inputs are the values of these at which to differentiate,
as a rule the named ones; others are put through a copy of the ops between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gecompiler.ir.errors import ModelError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.training.backward import Backward
from gecompiler.passes.training.tape import Tape

DOMAIN = "ai.onnx.preview.training"


def expand_gradients(graph: Graph) -> int:
    """Writes out every Gradient op of ``graph`` in place; how many there were.

    To be called while values have the names that the model gave them, with types inferred.
    ModelError, naming the node, for names that are none, and for ops without a derivative or
    whose sizes are not numbers.
    """
    ops = [op for op in graph.topological() if op.is_("Gradient", domain=DOMAIN)]
    became: dict[str, str] = {}
    for op in ops:
        became.update(_expand(graph, op, became))
    return len(ops)


def _expand(graph: Graph, op: Op, became: Mapping[str, str]) -> dict[str, str]:
    """Puts the derivatives in the op's place; what its outputs are called then."""
    xs, zs = (tuple(became.get(v, v) for v in op.attr(k, ())) for k in ("xs", "zs"))
    target = op.attr("y", "")
    target = became.get(target, target)
    _check(graph, op, xs, zs, target)
    between = _between(graph, target, (*xs, *zs))
    values = dict(zip((*xs, *zs), op.inputs, strict=True))
    if any(name != value for name, value in values.items()):
        between, target = _copied(graph, between, values, target)
    wrt = [values[x] for x in xs]
    tape = Tape(graph, stem=f"grad/{op.name}")
    kind = tape.type(target)
    seed = tape.constant(np.ones(kind.sizes, kind.dtype.numpy))
    found = Backward(tape, between, frozenset(wrt), {target: seed}).run()
    made: dict[str, str] = {}
    for output, value in zip(op.outputs, wrt, strict=False):
        if output:
            made[output] = found.get(value) or tape.zeros(tape.type(value))
    for output, value in made.items():
        graph.set_type(output, graph.type(value))
        graph.replace_uses(output, value)
    graph.remove_op(op.name)
    return {o: o if graph.has_value(o) else v for o, v in made.items()}


def _check(graph: Graph, op: Op, xs: Sequence[str], zs: Sequence[str], target: str) -> None:
    where = f"node {op.name!r} ({op.kind})"
    for name in (*xs, *zs, target):
        if not graph.has_value(name):
            raise ModelError(
                f"there is no value {name!r} to differentiate",
                where=where,
                hint=nearest(name, graph.values),
            )
    if len(op.inputs) != len(xs) + len(zs):
        raise ModelError(
            f"{len(op.inputs)} inputs for {len(xs) + len(zs)} names in xs and zs", where=where
        )
    if len(op.outputs) > len(xs):
        raise ModelError(f"{len(op.outputs)} outputs for {len(xs)} names in xs", where=where)


def _between(graph: Graph, target: str, sources: Sequence[str]) -> list[Op]:
    """The ops that ``target`` takes to compute from ``sources``, in topological order."""
    stop, pending, needed = set(sources), [target], set()
    while pending:
        value = pending.pop()
        maker = graph.producer(value) if value not in stop else None
        if maker is not None and maker.name not in needed:
            needed.add(maker.name)
            pending.extend(graph.reads(maker))
    return [op for op in graph.topological() if op.name in needed]


def _copied(
    graph: Graph, ops: Sequence[Op], values: Mapping[str, str], target: str
) -> tuple[list[Op], str]:
    """The ops once more, on other values; and what the target is called there."""
    names, made = dict(values), []
    for op in ops:
        types = [graph.type(v) if v else None for v in op.outputs]
        outputs = tuple(graph.fresh(f"{v}_at") if v else "" for v in op.outputs)
        if op.bodies and any(v in names for v in graph.captures(op)):
            raise ModelError(
                "a body takes a value that is to be replaced", where=f"node {op.name!r} ({op.kind})"
            )
        names.update(zip(op.outputs, outputs, strict=True))
        twin = op.with_(
            name=graph.fresh(f"{op.name}_at"),
            inputs=tuple(names.get(v, v) if v else "" for v in op.inputs),
            outputs=outputs,
        )
        graph.add_op(twin, types)
        made.append(twin)
    return made, names.get(target, target)
