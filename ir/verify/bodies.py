"""Whether bodies fit the ops that have them, and the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gecompiler.ir.errors import GraphError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op


def check_captures(body: Graph, around: Graph) -> None:
    """What a body takes is there, with the element type it expects; its opsets are the same."""
    if body.opsets != around.opsets:
        raise GraphError(
            f"a body has the opsets {body.opsets}, the graph around it {around.opsets}",
            where=body.name,
        )
    for value in body.outer:
        if not around.has_value(value):
            raise GraphError(
                f"value {value!r} is taken from the graph around, which has none of that name",
                where=body.name,
                hint=nearest(value, around.values),
            )
        inside, outside = body.tensor(value), around.tensor(value)
        if inside and outside and inside.dtype is not outside.dtype:
            raise GraphError(
                f"value {value!r} is {inside} here, and {outside} in the graph around",
                where=body.name,
            )


def _bodies(graph: Graph, op: Op, *names: str) -> list[Graph]:
    found = [op.attr(name) for name in names]
    for name, body in zip(names, found, strict=True):
        if not isinstance(body, Graph):
            raise GraphError(
                f"op {op.name!r} ({op.kind}) has no graph as its {name!r}", where=graph.name
            )
    return found


def _check_count(graph: Graph, op: Op, what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise GraphError(
            f"op {op.name!r} ({op.kind}): {what}: expected {wanted}, found {found}",
            where=graph.name,
        )


def _check_pairs(
    graph: Graph, op: Op, outer: Sequence[str], body: Graph, inner: Sequence[str]
) -> None:
    """The element types of op and body agree, pair by pair, where both are known."""
    for value, twin in zip(outer, inner, strict=True):
        outside, inside = graph.tensor(value) if value else None, body.tensor(twin)
        if outside and inside and outside.dtype is not inside.dtype:
            raise GraphError(
                f"op {op.name!r} ({op.kind}): {value!r} is {outside}, and its counterpart "
                f"{twin!r} in the body {inside}",
                where=graph.name,
            )


def _check_if(graph: Graph, op: Op) -> None:
    for branch in _bodies(graph, op, "then_branch", "else_branch"):
        title = f"branch {branch.name!r}"
        _check_count(graph, op, f"inputs of {title}", len(branch.inputs), 0)
        _check_count(graph, op, f"outputs of {title}", len(branch.outputs), len(op.outputs))
        _check_pairs(graph, op, op.outputs, branch, branch.outputs)


def _check_loop(graph: Graph, op: Op) -> None:
    """Body: (iteration, condition, carried...) to (condition, carried..., scanned...)."""
    (body,) = _bodies(graph, op, "body")
    carried = len(op.inputs) - 2
    _check_count(graph, op, "inputs of its body", len(body.inputs), len(op.inputs))
    _check_count(graph, op, "outputs of its body", len(body.outputs), len(op.outputs) + 1)
    _check_pairs(graph, op, op.inputs[2:], body, body.inputs[2:])
    _check_pairs(graph, op, op.outputs[:carried], body, body.outputs[1 : carried + 1])
    _check_pairs(graph, op, op.outputs[carried:], body, body.outputs[carried + 1 :])


def _check_scan(graph: Graph, op: Op) -> None:
    """Body: (state..., element...) to (state..., element...); opset 8 has lengths in front."""
    (body,) = _bodies(graph, op, "body")
    inputs = op.inputs[1:] if graph.opsets.get("", 0) < 9 else op.inputs
    _check_count(graph, op, "inputs of its body", len(body.inputs), len(inputs))
    _check_count(graph, op, "outputs of its body", len(body.outputs), len(op.outputs))
    _check_pairs(graph, op, inputs, body, body.inputs)
    _check_pairs(graph, op, op.outputs, body, body.outputs)


def _check_sequence_map(graph: Graph, op: Op) -> None:
    (body,) = _bodies(graph, op, "body")
    _check_count(graph, op, "inputs of its body", len(body.inputs), len(op.inputs))
    _check_count(graph, op, "outputs of its body", len(body.outputs), len(op.outputs))


BODY_RULES: Mapping[str, Callable[[Graph, Op], None]] = {
    "If": _check_if,
    "Loop": _check_loop,
    "Scan": _check_scan,
    "SequenceMap": _check_sequence_map,
}
