"""The parts of a norm in each spelling: squares, means over axes, roots and inverses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.block.patterns import maker, number, with_number
from gecompiler.passes.op_params import axes as given_axes
from gecompiler.passes.op_params import normal_axes
from gecompiler.passes.rewriting import Rewriter

_RELATIVE = 1e-6
_VIEWS = ("Reshape", "Unsqueeze")


@dataclass(frozen=True, slots=True)
class Part:
    """``value`` is what a part is computed from by ``ops``."""

    value: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of ``value`` (or of its square) over the axes from ``axis`` to before ``end``.

    Both count from behind: ``axis`` is negative, ``end`` too, or 0 behind the last axis.
    """

    value: str
    axis: int
    ops: tuple[Op, ...]
    end: int = 0

    @property
    def axes(self) -> tuple[int, int]:
        """The first axis and the end."""
        return self.axis, self.end


def square(r: Rewriter, value: str) -> Part | None:
    """``x ** 2`` or ``x * x``."""
    op = maker(r, value, "Pow", "Mul")
    if op is None:
        return None
    if op.op_type == "Mul":
        return Part(op.inputs[0], (op,)) if op.inputs[0] == op.inputs[1] else None
    return Part(op.inputs[0], (op,)) if number(r, op.inputs[1]) == 2 else None


def mean(r: Rewriter, value: str) -> Mean | None:
    """ReduceMean, or ReduceSum divided by the number of elements."""
    return _reduced(r, value, "ReduceMean") or _quotient(r, value, "ReduceSum")


def mean_of_square(r: Rewriter, value: str) -> Mean | None:
    """The mean of a square."""
    found = mean(r, value)
    if found is None:
        return _quotient(r, value, "ReduceSumSquare")
    part = square(r, found.value)
    return None if part is None else replace(found, value=part.value, ops=(*part.ops, *found.ops))


def centring(r: Rewriter, value: str) -> Mean | None:
    """The mean of X that the value is X minus, with the difference among its ops."""
    minus = maker(r, value, "Sub")
    middle = None if minus is None else mean(r, minus.inputs[1])
    if minus is None or middle is None or middle.value != minus.inputs[0]:
        return None
    return replace(middle, ops=(*middle.ops, minus))


def variance(r: Rewriter, value: str) -> Mean | None:
    """``mean(x * x) - mean(x) ** 2``, of X."""
    minus = maker(r, value, "Sub")
    whole = None if minus is None else mean_of_square(r, minus.inputs[0])
    part = None if minus is None else square(r, minus.inputs[1])
    middle = None if part is None else mean(r, part.value)
    if minus is None or whole is None or part is None or middle is None:
        return None
    if (whole.value, whole.axes) != (middle.value, middle.axes):
        return None
    return replace(whole, ops=(*whole.ops, *middle.ops, *part.ops, minus))


def _reduced(r: Rewriter, value: str, op_type: str) -> Mean | None:
    """A reduction over neighbouring axes, which stay as ones, or come back as such."""
    op, view = maker(r, value, op_type), None
    if op is None:
        view = maker(r, value, *_VIEWS)
        op = None if view is None else maker(r, view.inputs[0], op_type)
    shape = None if op is None else r.facts.shape(op.inputs[0])
    if op is None or not shape:
        return None
    given = given_axes(r, op)
    if given is None and (op.input(1) or op.attr("noop_with_empty_axes", 0)):
        return None
    axes = normal_axes(given if given else tuple(range(len(shape))), len(shape))
    if axes is None or axes != tuple(range(axes[0], axes[-1] + 1)):
        return None
    kept = tuple(1 if n in axes else dim for n, dim in enumerate(shape))
    if r.facts.shape(value) != kept:
        return None
    ops = (op,) if view is None else (op, view)
    return Mean(op.inputs[0], axes[0] - len(shape), ops, axes[-1] + 1 - len(shape))


def _quotient(r: Rewriter, value: str, op_type: str) -> Mean | None:
    """A sum divided by how many elements it is over, or multiplied by the inverse of that."""
    op = maker(r, value, "Div", "Mul")
    if op is None:
        return None
    for x, factor in with_number(r, op):
        found = _reduced(r, x, op_type)
        count = None if found is None else _count(r.facts.shape(found.value), found)
        if found is None or count is None or (op.op_type == "Div" and x != op.inputs[0]):
            continue
        wanted = count if op.op_type == "Div" else 1 / count
        if abs(factor - wanted) <= _RELATIVE * wanted:
            return replace(found, ops=(*found.ops, op))
    return None


def _count(shape: Shape | None, found: Mean) -> int | None:
    count = 1
    for dim in shape[found.axis : found.end or None] if shape else ():
        if not isinstance(dim, int):
            return None
        count *= dim
    return count


def root(r: Rewriter, value: str) -> Part | None:
    """``sqrt(v)`` or ``v ** 0.5``."""
    op = maker(r, value, "Sqrt", "Pow")
    if op is None or (op.op_type == "Pow" and number(r, op.inputs[1]) != 0.5):
        return None
    return Part(op.inputs[0], (op,))


def inverse_root(r: Rewriter, value: str) -> Part | None:
    """``1 / sqrt(v)``, ``sqrt(1 / v)`` or ``v ** -0.5``."""
    power = maker(r, value, "Pow")
    if power is not None and number(r, power.inputs[1]) == -0.5:
        return Part(power.inputs[0], (power,))
    for first, second in ((_inverse, root), (root, _inverse)):
        outer = first(r, value)
        inner = None if outer is None else second(r, outer.value)
        if outer is not None and inner is not None:
            return Part(inner.value, (*inner.ops, *outer.ops))
    return None


def _inverse(r: Rewriter, value: str) -> Part | None:
    """``reciprocal(v)`` or ``1 / v``."""
    op = maker(r, value, "Reciprocal", "Div")
    if op is None:
        return None
    if op.op_type == "Reciprocal":
        return Part(op.inputs[0], (op,))
    return Part(op.inputs[1], (op,)) if number(r, op.inputs[0]) == 1 else None


def is_epsilon(number: object) -> bool:
    """Whether a norm can add the number to what it takes the root of."""
    return isinstance(number, int | float) and 0 <= number < math.inf


def is_plain_norm(op: Op, epsilon: float) -> bool:
    """Whether the attributes of a norm's op are such that a norm can be computed by them.

    ``epsilon`` is the default of the op.
    """
    stash = op.attr("stash_type", 1)
    return is_epsilon(op.attr("epsilon", epsilon)) and stash in _STASHES


_STASHES = frozenset(d.code for d in (DType.F16, DType.BF16, DType.F32, DType.F64))


def plus_epsilon(r: Rewriter, value: str) -> Iterator[tuple[str, float, tuple[Op, ...]]]:
    """The ways to see a value as something and a number of 0 or more added."""
    op = maker(r, value, "Add")
    for x, epsilon in with_number(r, op) if op is not None else ():
        if is_epsilon(epsilon) and op is not None:
            yield x, epsilon, (op,)
    yield value, 0.0, ()
