"""The rules of the ops that block fusion makes; `block_ops` says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gecompiler.ir.block_ops import (
    ACTIVATIONS,
    NORMS,
    ROTARY_EMBEDDING,
    Activation,
    Norm,
    NormInputs,
    Rotary,
    is_block_op,
)
from gecompiler.ir.dims import floordiv
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.ir.verify.flash_attention import differ


def check_block_op(graph: Graph, op: Op) -> None:
    """Raises GraphError when the op is one of them and breaks a rule; unknown sizes break none."""
    if is_block_op(op):
        try:
            _CHECKS[op.op_type](_Checker(graph, op))
        except GraphError as error:
            raise GraphError(error.message, where=graph.name) from None


class _Checker:
    def __init__(self, graph: Graph, op: Op) -> None:
        self.graph = graph
        self.op = op

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            raise GraphError(f"op {self.op.name!r} ({self.op.kind}) {message}")

    def arity(self, inputs: tuple[int, int], needed: int, outputs: int = 1) -> None:
        count, op = len(self.op.inputs), self.op
        least, most = inputs
        self.require(least <= count <= most, f"has {count} inputs, expected {least} to {most}")
        self.require(all(op.inputs[:needed]), "leaves out an input that is not optional")
        given = len(op.outputs)
        self.require(1 <= given <= outputs and bool(op.outputs[0]), f"has {given} outputs")

    def floats(self, values: Sequence[str], *, alike: bool = True) -> None:
        """All are of float types, of X's where they are to be ``alike``."""
        first = self.graph.tensor(self.op.inputs[0])
        for value in values:
            found = self.graph.tensor(value) if value else None
            if found is None:
                continue
            self.require(found.dtype.is_float, f"has {value!r} of type {found}, expected floats")
            same = not alike or first is None or found.dtype is first.dtype
            self.require(same, f"has {value!r} of type {found}, expected that of its input")

    def shape(self, value: str) -> Shape | None:
        return self.graph.shape(value) if value else None

    def broadcasts(self, value: str, target: Shape, what: str) -> None:
        """The value broadcasts to the target without making it larger."""
        found = self.shape(value)
        if found is None:
            return
        over = max(0, len(found) - len(target))
        fits = all(dim == 1 for dim in found[:over]) and all(
            a == 1 or not differ(a, b)
            for a, b in zip(reversed(found), reversed(target), strict=False)
        )
        self.require(fits, f"has {what} {value!r} of shape {_text(found)} for {_text(target)}")

    def same(self, value: str, target: Shape, what: str) -> None:
        """The value has the target's shape."""
        found = self.shape(value)
        same = found is None or (len(found) == len(target) and not any(map(differ, found, target)))
        self.require(same, f"has {what} {value!r} of shape {found}, expected {_text(target)}")


def _norm(check: _Checker) -> None:
    op = check.op
    norm, inputs = Norm.of(op), NormInputs.of(op)
    check.arity((2, 5) if norm.adds else (1, 3), 2 if norm.adds else 1, 2 if norm.adds else 1)
    check.require(norm.epsilon >= 0, f"has epsilon = {norm.epsilon}, expected 0 or more")
    check.floats((inputs.x, inputs.residual, inputs.bias, *op.outputs[1:]))
    made = check.graph.tensor(op.outputs[0])
    told = made is None or made.dtype is norm.output
    check.require(told, f"makes {made}, expected {norm.output.short} by its output_type")
    check.floats((inputs.scale, inputs.shift), alike=False)
    shape = check.shape(inputs.x)
    if shape is None:
        return
    rank = len(shape)
    check.require(-rank <= norm.axis < rank, f"has axis = {norm.axis} for rank {rank}")
    for value in (inputs.residual, *op.outputs):
        check.same(value, shape, "value")
    for value in (inputs.scale, inputs.shift):
        check.broadcasts(value, shape[norm.axis % rank :], "scale or shift")
    check.broadcasts(inputs.bias, shape[-1:], "bias")


def _rotary(check: _Checker) -> None:
    op, rotary = check.op, Rotary.of(check.op)
    check.arity((3, 3), 3)
    check.floats((op.inputs[0], *op.outputs))
    check.floats(op.inputs[1:], alike=False)
    shape = check.shape(op.inputs[0])
    if shape is None:
        return
    check.require(bool(shape), "rotates a scalar")
    last = shape[-1]
    fits = not isinstance(last, int) or rotary.start + rotary.dim <= last
    check.require(fits, f"rotates {rotary.dim} lanes from {rotary.start} on, of {last}")
    check.same(op.outputs[0], shape, "output")
    for table in op.inputs[1:]:
        found = check.shape(table)
        if found is None:
            continue
        width = found[-1] if found else 1
        sizes = (rotary.dim, rotary.dim // 2)
        check.require(
            not isinstance(width, int) or width in sizes,
            f"has the table {table!r} of {width} columns, expected {sizes[0]} or {sizes[1]}",
        )
        check.broadcasts(table, (*shape[:-1], width), "table")


def _activation(check: _Checker) -> None:
    op, spec = check.op, Activation.of(check.op)
    check.arity((1, 3 if spec.gated else 2), 1)
    check.floats((*op.inputs, *op.outputs))
    shape = check.shape(op.inputs[0])
    if shape is None:
        return
    check.broadcasts(op.input(2 if spec.gated else 1), shape[-1:], "bias")
    if spec.gated and op.input(1):
        check.same(op.input(1), shape, "gated value")
    elif spec.gated:
        check.require(bool(shape), "halves a scalar")
        shape = (*shape[:-1], floordiv(shape[-1], 2))
    check.same(op.outputs[0], shape, "output")


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


_CHECKS: Mapping[str, Callable[[_Checker], None]] = {
    **dict.fromkeys(NORMS, _norm),
    ROTARY_EMBEDDING: _rotary,
    **dict.fromkeys(ACTIVATIONS, _activation),
}
