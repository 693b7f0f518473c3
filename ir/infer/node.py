"""What a shape rule sees of an op: types and contents of inputs, attributes, a way to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, Union

from gecompiler.ir.dims import Dim, broadcast
from gecompiler.ir.errors import ModelError
from gecompiler.ir.infer.arrays import SymbolicArray, contents
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape, TensorType

if TYPE_CHECKING:
    from gecompiler.ir.infer.scope import Scope

PartialShape = tuple[Union[Dim, None], ...]
"""A shape in which None stands for a size that the rule cannot tell."""

Shapes = Sequence[Union[PartialShape, None]]
"""One for each output; None where not even the rank is known."""

Rule = Callable[["Node"], Union[Shapes, None]]
"""Shapes of an op's outputs, or None to leave the op to onnx."""


class Node:
    """An op within its scope, as rules see it. Rules read only."""

    __slots__ = ("op", "scope", "version")

    def __init__(self, scope: Scope, op: Op) -> None:
        self.scope = scope
        self.op = op
        self.version = scope.opset(op.domain)

    # ------------------------------------------------------------ inputs

    def has(self, index: int) -> bool:
        """Whether that input is there."""
        return bool(self.op.input(index))

    def type(self, index: int) -> TensorType | None:
        """The type of that input if it is a tensor's and known."""
        return self.scope.graph.tensor(self.op.input(index))

    def shape(self, index: int) -> Shape | None:
        """The shape of that input, None when it is absent or its rank unknown."""
        return self.scope.graph.shape(self.op.input(index))

    def rank(self, index: int) -> int | None:
        """The rank of that input, or None."""
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def dtype(self, index: int) -> DType | None:
        """The element type of that input, or None."""
        found = self.type(index)
        return None if found is None else found.dtype

    def value(self, index: int) -> SymbolicArray | None:
        """What is known of that input's contents."""
        name = self.op.input(index)
        found = self.scope.values.get(name)
        if found is None and name:
            constant = self.scope.graph.constant(name)
            if constant is not None and constant.type.dtype.is_float:
                found = contents(constant)
                if found is not None:
                    self.scope.values[name] = found
        return found

    def items(self, index: int) -> tuple[Dim | None, ...] | None:
        """The elements of an input of rank 0 or 1; all None when only their number is known.

        None when the input is absent or its length unknown.
        """
        found = self.value(index)
        if found is not None:
            return found.items
        shape = self.shape(index)
        if shape is None or len(shape) > 1:
            return None
        count = shape[0] if shape else 1
        return (None,) * count if isinstance(count, int) and count <= 1024 else None

    def scalar(self, index: int) -> Dim | None:
        """The only element of a one-element input, or None."""
        found = self.value(index)
        return found.items[0] if found is not None and len(found.items) == 1 else None

    # ------------------------------------------------------------ parameters

    def ints(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers given as attribute ``name`` in old opsets, as input ``index`` in new ones.

        None when they are not given, or not known (tell the two apart by `has`).
        """
        given = self.op.attrs.get(name)
        if isinstance(given, tuple):
            return tuple(int(x) for x in given if isinstance(x, (int, float)))
        if isinstance(given, int):
            return (given,)
        found = self.value(index)
        return None if found is None else found.numbers

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """The axis attribute, counted from the front; a ModelError when out of range."""
        return self.front(int(self.op.attr(name, default)), rank)

    def front(self, axis: int, rank: int) -> int:
        """An axis counted from the front; a ModelError when it is out of range."""
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    def fronts(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, each given once."""
        found = tuple(self.front(a, rank) for a in axes)
        if len(set(found)) < len(found):
            self.fail(f"an axis is given twice in {list(axes)}")
        return found

    # ------------------------------------------------------------ sizes

    def same(self, a: Dim | None, b: Dim | None, what: str) -> Dim | None:
        """The size that two dims have which a valid program makes equal.

        Two different numbers are a ModelError; else the number, or the simpler expression, is
        taken, and the assumption is noted.
        """
        if a == b or b is None:
            return a
        if a is None:
            return b
        if isinstance(a, int) and isinstance(b, int):
            self.fail(f"{what} must agree, found {a} and {b}")
        self.scope.assume(a, b, self.op, broadcast=False)
        if isinstance(a, int) or isinstance(b, int):
            return a if isinstance(a, int) else b
        return a if a.atoms <= b.atoms else b

    def least(self, *dims: Dim) -> int:
        """What symbols in sizes are at least: 1 when all are inputs', which are not empty.

        (No size is ever bound to 0.) Sizes that depend on data may well be 0.
        """
        return int(all(self.scope.shared.is_settled(d) for d in dims))

    def broadcast(self, shapes: Sequence[Shape]) -> Shape:
        """The shapes broadcast together, right-aligned; a ModelError when they cannot be."""
        result = shapes[0]
        for shape in shapes[1:]:
            if shape == result or not shape:
                continue
            if len(shape) > len(result):
                result, shape = shape, result  # noqa: PLW2901
            head = len(result) - len(shape)
            result = result[:head] + tuple(map(self.broadcast_dims, result[head:], shape))
        return result

    def broadcast_dims(self, a: Dim, b: Dim) -> Dim:
        """Two sizes broadcast together; a ModelError when they cannot be."""
        if b in (a, 1):
            return a
        if a == 1:
            return b
        try:
            result = broadcast(a, b)
        except ValueError as error:
            self.fail(f"{error}")
        self.scope.assume(a, b, self.op, broadcast=True)
        return result

    def fresh(self, output: int, axis: int, bound: Dim | None = None) -> Dim:
        """The symbol of a size that nothing determines; ``bound`` limits it from above."""
        return self.scope.fresh(self.op, output, axis, bound)

    def fail(self, message: str, hint: str = "") -> NoReturn:
        """Raises the ModelError for this node, with its inputs' types."""
        kinds = ", ".join(
            str(self.scope.graph.tensor(v) or "?") if v else "-" for v in self.op.inputs
        )
        raise ModelError(
            f"{message}; inputs: {kinds}" if kinds else message,
            where=f"node {self.op.name!r} ({self.op.kind})",
            hint=hint
            or "the shapes in the model, or those given for its inputs, do not fit this op",
        )
