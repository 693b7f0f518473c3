"""Softmax in every spelling: the anchors from which attention is looked for.

An anchor is a value that is the softmax of another along one axis: the op itself (whose axis
means different things before and since opset 13), or ``exp(x) / sum(exp(x))`` written out.
Subtracting the row's maximum first is left to the peeling of the scores: any shift is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.noops import maker, origin


@dataclass(frozen=True, slots=True)
class Anchor:
    """``output`` is the softmax of ``input`` along ``axis``; ``ops`` compute it.

    ``op`` names the site. ``axis`` is None where several axes are normalised together.
    """

    op: Op
    input: str
    output: str
    axis: int | None
    ops: tuple[Op, ...]


def anchors(e: Elements) -> Iterator[Anchor]:
    """Every softmax of the graph, in topological order."""
    for op in e.graph.topological():
        rule = ANCHORS.get(op.op_type) if not op.domain else None
        found = None if rule is None else rule(e, op)
        if found is not None:
            yield found


def _softmax(e: Elements, op: Op) -> Anchor | None:
    shape = e.shape(op.inputs[0])
    if shape is None:
        return None
    if e.graph.opsets.get("", 0) >= 13:
        return Anchor(op, op.inputs[0], op.outputs[0], op.attr("axis", -1) % len(shape), (op,))
    # Before opset 13 everything from the axis on is one row.
    first = op.attr("axis", 1) % max(len(shape), 1)
    wide = [n for n in range(first, len(shape)) if shape[n] != 1]
    axis = (wide[0] if wide else first) if len(wide) <= 1 else None
    return Anchor(op, op.inputs[0], op.outputs[0], axis, (op,))


def _exp(e: Elements, op: Op) -> Anchor | None:
    """``exp(log_softmax(x))``."""
    inner = maker(e, op.inputs[0])
    if inner is None or not inner.is_("LogSoftmax"):
        return None
    found = _softmax(e, inner)
    if found is None:
        return None
    return Anchor(inner, found.input, op.outputs[0], found.axis, (inner, op))


def _quotient(e: Elements, op: Op) -> Anchor | None:
    """``exp(x) / reduce_sum(exp(x))``."""
    total = maker(e, op.inputs[1])
    return None if total is None else _written_out(e, op, op.inputs[0], total, (op,))


def _product(e: Elements, op: Op) -> Anchor | None:
    """``exp(x) * reciprocal(reduce_sum(exp(x)))``, either way round."""
    for index in (0, 1):
        inverse = maker(e, op.inputs[1 - index])
        if inverse is not None and inverse.is_("Reciprocal"):
            total = maker(e, inverse.inputs[0])
            if total is not None:
                found = _written_out(e, op, op.inputs[index], total, (inverse, op))
                if found is not None:
                    return found
    return None


def _written_out(e: Elements, op: Op, value: str, total: Op, last: tuple[Op, ...]) -> Anchor | None:
    exp, shape = maker(e, value), e.shape(value)
    if exp is None or not exp.is_("Exp") or not total.is_("ReduceSum") or shape is None:
        return None
    axes = reduced_axes(e, total, len(shape))
    if (
        origin(e, total.inputs[0]) != exp.outputs[0]
        or axes is None
        or len(axes) != 1
        or not total.attr("keepdims", 1)
    ):
        return None
    return Anchor(op, exp.inputs[0], op.outputs[0], axes[0], (exp, total, *last))


def reduced_axes(e: Elements, op: Op, rank: int) -> tuple[int, ...] | None:
    """The axes a reduction goes over, non-negative; None when not known."""
    given = e.ints(op.input(1)) if op.input(1) else op.attr("axes")
    if given is None:
        return None if op.input(1) else tuple(range(rank))
    return tuple(a % rank for a in given)


ANCHORS: Mapping[str, Callable[[Elements, Op], Anchor | None]] = {
    "Softmax": _softmax,
    "Exp": _exp,
    "Div": _quotient,
    "Mul": _product,
}
"""Ops that may end a softmax."""
