"""Shapes of Concat, Split, Slice and Pad."""

from __future__ import annotations

from gecompiler.ir.dim_bounds import at_least, largest, smallest
from gecompiler.ir.dims import Dim, ceildiv, collect, floordiv, terms
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes

_FAR = 2**31 - 1
"""Exporters write INT32_MAX or INT64_MAX for "to the end"."""


def concat(node: Node) -> Shapes:
    """Sizes added up along the axis; the others must agree."""
    shapes = [node.shape(i) for i in range(len(node.op.inputs))]
    ranked = [s for s in shapes if s is not None]
    if not ranked:
        return (None,)
    rank = len(ranked[0])
    axis = node.axis(rank)
    sizes: list[Dim | None] = list(ranked[0])
    for shape in ranked[1:]:
        if len(shape) != rank:
            node.fail("the inputs of Concat must have one rank")
        for i, size in enumerate(shape):
            if i != axis:
                sizes[i] = node.same(sizes[i], size, f"sizes along axis {i} beside the Concat axis")
    total = collect([term for shape in ranked for term in terms(shape[axis])])
    sizes[axis] = total if len(ranked) == len(shapes) else None
    return (tuple(sizes),)


def split(node: Node) -> Shapes:
    """Parts along the axis: as given, or equal (the last smaller) by number of outputs."""
    shape, count = node.shape(0), len(node.op.outputs)
    if shape is None:
        return (None,) * count
    axis = node.axis(len(shape))
    parts: tuple[Dim | None, ...] | None = node.ints("split", 1) or node.items(1)
    if parts is None and not node.has(1):
        parts = _equal_parts(node, shape[axis], count)
    if parts is None:
        parts = (None,) * count
    if len(parts) != count:
        node.fail(f"{len(parts)} parts for {count} outputs")
    total = sum((p for p in parts if isinstance(p, int)), 0)
    if all(isinstance(p, int) for p in parts):
        node.same(shape[axis], total, f"size of axis {axis} and the sum of the parts")
    return tuple((*shape[:axis], part, *shape[axis + 1 :]) for part in parts)


def _equal_parts(node: Node, whole: Dim, count: int) -> tuple[Dim, ...]:
    """Equal parts; from opset 18 on the last may be smaller."""
    if node.version < 18:
        if isinstance(whole, int) and whole % count:
            node.fail(f"{whole} cannot be divided into {count} equal parts")
        return (floordiv(whole, count),) * count
    each = ceildiv(whole, count)
    return (*(each for _ in range(count - 1)), whole - each * (count - 1))


def slice_(node: Node) -> Shapes:
    """Sizes between starts and ends, both clamped to the axis."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    old = node.version < 10
    starts = node.ints("starts", 1) if old else node.items(1)
    ends = node.ints("ends", 2) if old else node.items(2)
    count = len(starts) if starts is not None else len(ends) if ends is not None else len(shape)
    axes: tuple[int, ...] | None = tuple(range(count))
    if (old and "axes" in node.op.attrs) or (not old and node.has(3)):
        axes = node.ints("axes", 3)
    if axes is None:
        return ((None,) * len(shape),)
    axes = node.fronts(axes, len(shape))
    unknown = (None,) * len(axes)
    steps = (1,) * len(axes) if old or not node.has(4) else node.items(4) or unknown
    starts, ends = starts or unknown, ends or unknown
    if not len(axes) == len(starts) == len(ends) == len(steps):
        node.fail("starts, ends, axes and steps must have one length")
    sizes: list[Dim | None] = list(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        sizes[axis] = _length(node, shape[axis], start, end, step)
        if sizes[axis] is None:
            sizes[axis] = node.fresh(0, axis, shape[axis])
    return (tuple(sizes),)


def _length(
    node: Node, size: Dim, start: Dim | None, end: Dim | None, step: Dim | None
) -> Dim | None:
    if step == 0:
        node.fail("a step of 0")
    if start is None or end is None or not isinstance(step, int):
        return None
    least = node.least(size, start, end)
    if isinstance(start, int) and -_FAR < start < 0 and isinstance(end, int) and end >= _FAR:
        # The last few: said so, it is easier to prove things about than by clamped ends.
        return ceildiv(smallest(size, -start, least=least), step) if step > 0 else 0
    first = clamped(start, size, least, backwards=step < 0)
    last = clamped(end, size, least, backwards=step < 0)
    if first is None or last is None:
        return None
    span = last - first if step > 0 else first - last
    return largest(0, ceildiv(span, abs(step)), least=least)


def clamped(index: Dim, size: Dim, least: int, *, backwards: bool) -> Dim | None:
    """A slice bound as a position: negative ones count from the end; both ends are clamped.

    Forwards it lies in [0, size], backwards in [-1, size - 1]. None where the sign of an
    expression is not proven for symbols of at least ``least``.
    """
    low, high = (-1, size - 1) if backwards else (0, size)
    if isinstance(index, int):
        if index >= _FAR:
            return high
        if index <= -_FAR:
            return low
        position: Dim = index if index >= 0 else size + index
    elif at_least(index, 0, least):
        position = index
    elif at_least(-index, 1, least):
        position = size + index
    else:
        return None
    return smallest(largest(position, low, least=least), high, least=least)


def pad(node: Node) -> Shapes:
    """Sizes plus what is added before and after; negative pads crop."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    name = "pads" if "pads" in node.op.attrs else "paddings"
    given = node.op.attrs.get(name)
    pads = tuple(given) if isinstance(given, tuple) else node.items(1)
    axes: tuple[int, ...] | None = tuple(range(len(shape)))
    if node.has(3):
        axes = node.ints("axes", 3)
    if pads is None or axes is None:
        return ((None,) * len(shape),)
    axes = node.fronts(axes, len(shape))
    if len(pads) != 2 * len(axes):
        node.fail(f"{len(pads)} pads for {len(axes)} axes")
    sizes: list[Dim | None] = list(shape)
    for i, axis in enumerate(axes):
        before, after = _dim(pads[i]), _dim(pads[len(axes) + i])
        size = None if before is None or after is None else shape[axis] + before + after
        if isinstance(size, int) and size < 0:
            node.fail(f"pads take more off axis {axis} than it has")
        sizes[axis] = size
    result: PartialShape = tuple(sizes)
    return (result,)


def _dim(item: object) -> Dim | None:
    return int(item) if isinstance(item, int) else item  # type: ignore[return-value]


def center_crop_pad(node: Node) -> Shapes:
    """The axes cropped or padded to the sizes that the second input holds."""
    shape, sizes = node.shape(0), node.items(1)
    if shape is None:
        return (None,)
    axes = tuple(range(len(shape)))
    if node.op.attrs.get("axes"):
        axes = node.fronts(node.ints("axes", len(node.op.inputs)) or (), len(shape))
    if sizes is not None and len(sizes) != len(axes):
        node.fail(f"{len(sizes)} sizes for {len(axes)} axes")
    result: list[Dim | None] = list(shape)
    for i, axis in enumerate(axes):
        result[axis] = None if sizes is None else sizes[i]
    return (tuple(result),)


RULES: dict[str, Rule] = {
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
    "CenterCropPad": center_crop_pad,
}
