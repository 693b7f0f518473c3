"""Layouts: what each axis of a tensor means, as a product of factors.

The layout of a tensor is, for each axis, a list of *factors*, major to minor. A factor is an
index that several tensors of one attention share: the batch, the head, the query, the key, one
dim of a head. An axis of size 1 has none. So Q as ``(B, S, H*D)`` is ``[b] [s] [h d]``, K^T of a
batched matmul over ``B*H`` is ``[b h] [d] [t]``.

Views (Transpose, Reshape, Unsqueeze, ...) only permute and regroup factors, whatever op spells
them. Walking from a consumer to its producer, `VIEWS` gives the layout of the op's input from
that of its output. A Reshape in the middle of a factor splits it in two, everywhere at once: so
a ``(B*H, S, D)`` operand learns that it has heads from wherever they are told apart. A factor
that an Expand or Tile made is absent from the input: the input repeats along it.

Sizes are compared as dims, which are equal only when proven so; a view that cannot be followed
gives None, and the walk stops there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gecompiler.ir.dims import Dim, floordiv, mod, product
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape


class Factor:
    """One index, told apart by identity. ``parts`` (major, minor) once it has been split."""

    __slots__ = ("parts", "size")

    def __init__(self, size: Dim) -> None:
        self.size = size
        self.parts: tuple[Factor, ...] = ()

    def split(self, major: Dim) -> tuple[Factor, Factor]:
        """Splits into ``major`` times the rest, for every layout that holds this factor."""
        first, second = Factor(major), Factor(floordiv(self.size, major))
        self.parts = (first, second)
        return first, second

    def __repr__(self) -> str:
        return "*".join(map(repr, self.parts)) if self.parts else f"<{self.size}>"


Axis = tuple[Factor, ...]
Layout = tuple[Axis, ...]


def flat(axis: Iterable[Factor]) -> Axis:
    """The factors with those that have been split replaced by their parts."""
    axis = tuple(axis)
    if not any(factor.parts for factor in axis):
        return axis
    found: list[Factor] = []
    for factor in axis:
        found.extend(flat(factor.parts) if factor.parts else (factor,))
    return tuple(found)


def plain(layout: Layout) -> Layout:
    """The layout with split factors replaced by their parts, and none of size 1."""
    return tuple(tuple(f for f in flat(axis) if f.size != 1) for axis in layout)


def flatten(layout: Layout) -> Axis:
    """All factors of a tensor in memory order."""
    return flat(f for axis in layout for f in axis)


def size(axis: Iterable[Factor]) -> Dim:
    """How long an axis with these factors is."""
    return product(f.size for f in axis)


def shape_of(layout: Layout) -> Shape:
    """The shape of a tensor with this layout."""
    return tuple(size(axis) for axis in layout)


def fresh(shape: Shape) -> Layout:
    """A layout in which every axis that is not of size 1 is a new factor."""
    return tuple(() if dim == 1 else (Factor(dim),) for dim in shape)


def resize(layout: Layout, shape: Shape) -> None:
    """Names the sizes as ``shape`` does, which is known to have the same ones."""
    for axis, dim in zip(layout, shape, strict=True):
        if len(axis) == 1 and not axis[0].parts:
            axis[0].size = dim


def same_axis(a: Axis, b: Axis) -> bool:
    """Whether two axes hold the same factors in the same order."""
    return flat(a) == flat(b)


def same(a: Layout, b: Layout) -> bool:
    """Whether two layouts are the same."""
    return len(a) == len(b) and all(same_axis(x, y) for x, y in zip(a, b, strict=True))


def divides(divisor: Dim, dim: Dim) -> bool:
    """Whether ``dim`` is proven to be a multiple of ``divisor``."""
    return divisor != 0 and mod(dim, divisor) == 0


def regroup(layout: Layout, shape: Shape) -> Layout | None:
    """The layout after a row-major reshape to ``shape``; None when it cannot be proven."""
    pending = [f for f in reversed(flatten(layout)) if f.size != 1]
    result: list[Axis] = []
    for dim in shape:
        axis: list[Factor] = []
        left = dim
        while left != 1:
            if not pending:
                return None
            factor = pending.pop()
            if divides(factor.size, left):
                left = floordiv(left, factor.size)
            elif divides(left, factor.size):
                factor, rest = factor.split(left)
                pending.append(rest)
                left = 1
            else:
                return None
            axis.append(factor)
        result.append(tuple(axis))
    if pending:
        return None
    if result and layout and shape[-1] == 1 and size(layout[-1]) == 1:
        result[-1] = layout[-1]  # a single key keeps its factor as long as it is last
    return tuple(result)


# ---------------------------------------------------------------- views, from output to input

View = Callable[[Graph, Op, Layout], "Layout | None"]


def _identity(graph: Graph, op: Op, out: Layout) -> Layout | None:
    return out


def _transpose(graph: Graph, op: Op, out: Layout) -> Layout | None:
    perm = permutation(op, len(out))
    found: list[Axis] = [()] * len(out)
    for position, axis in zip(perm, out, strict=True):
        found[position] = axis
    return tuple(found)


def _reshape(graph: Graph, op: Op, out: Layout) -> Layout | None:
    shape = graph.shape(op.inputs[0])
    return None if shape is None else regroup(out, shape)


def _expand(graph: Graph, op: Op, out: Layout) -> Layout | None:
    """An axis of size 1 that grew loses its factors: the input repeats along them."""
    before, after = graph.shape(op.inputs[0]), graph.shape(op.outputs[0])
    if before is None or after is None or len(after) != len(out):
        return None
    lead = len(after) - len(before)
    found: list[Axis] = []
    for position, dim in enumerate(before):
        if dim != 1 and dim != after[lead + position]:
            return None
        found.append(() if dim == 1 else out[lead + position])
    return tuple(found)


def _tile(graph: Graph, op: Op, out: Layout) -> Layout | None:
    """A repeated axis is (copies, original): the copies are the major part."""
    before, after = graph.shape(op.inputs[0]), graph.shape(op.outputs[0])
    if before is None or after is None or not len(before) == len(after) == len(out):
        return None
    found: list[Axis] = []
    for axis, dim, grown in zip(out, before, after, strict=True):
        if dim == grown:
            found.append(axis)
            continue
        if not divides(dim, grown):
            return None
        parts = regroup((axis,), (floordiv(grown, dim), dim))
        if parts is None:
            return None
        found.append(parts[1])
    return tuple(found)


def _concat_of_copies(graph: Graph, op: Op, out: Layout) -> Layout | None:
    """Concat of one value several times is a Tile along the axis."""
    return _tile(graph, op, out) if len(set(op.inputs)) == 1 else None


VIEWS: Mapping[str, View] = {
    "Identity": _identity,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat_of_copies,
}
"""Ops that move elements about: how the input's layout follows from the output's.

A new spelling of a view is one function here."""


def permutation(op: Op, rank: int) -> tuple[int, ...]:
    """The ``perm`` of a Transpose; the default reverses the axes."""
    return tuple(op.attr("perm", tuple(reversed(range(rank)))))


def before(graph: Graph, op: Op, out: Layout) -> Layout | None:
    """The layout of the first input of a view whose output has layout ``out``, or None."""
    view = VIEWS.get(op.op_type) if op.domain == "" else None
    return None if view is None else view(graph, op, out)


def after(graph: Graph, op: Op, given: Layout) -> Layout | None:
    """The layout of the output of a view that only regroups or permutes, or None."""
    if op.is_("Transpose"):
        return tuple(given[p] for p in permutation(op, len(given)))
    if op.is_("Identity"):
        return given
    if op.is_("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        shape = graph.shape(op.outputs[0])
        return None if shape is None else regroup(given, shape)
    return None


def positions(axis: Sequence[Factor]) -> tuple[tuple[Factor, Dim], ...]:
    """The factors of an axis with the stride of each within the axis."""
    found: list[tuple[Factor, Dim]] = []
    stride: Dim = 1
    for factor in reversed(axis):
        found.append((factor, stride))
        stride = stride * factor.size
    return tuple(reversed(found))
