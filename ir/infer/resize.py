"""Shapes of Resize and its forerunner Upsample."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes

_MOST = 2.0**31
"""Largest scale; beyond it sizes exceed what float32 counts."""


def resize(node: Node) -> Shapes:
    """Sizes as given, or each size times its scale, rounded down."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    new = node.version >= 11 and node.op.op_type == "Resize"
    axes = tuple(range(len(shape)))
    if node.op.attrs.get("axes"):
        axes = node.fronts(node.ints("axes", len(node.op.inputs)) or (), len(shape))
    result: list[Dim | None] = list(shape)
    sizes = node.items(3) if new and node.has(3) else None
    if sizes:
        if len(sizes) != len(axes):
            node.fail(f"{len(sizes)} sizes for {len(axes)} axes")
        for axis, size in zip(axes, sizes, strict=True):
            result[axis] = size
        return (_kept_ratio(node, shape, axes, result),)
    scales = _scales(node, 2 if new else 1)
    if scales is None or len(scales) != len(axes):
        return ((None,) * len(shape),)
    if node.op.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = _floats(node, 1)
        if roi is None or len(roi) != 2 * len(axes):
            return ((None,) * len(shape),)
        spans = zip(roi, roi[len(axes) :], strict=False)
        scales = [s * (end - start) for s, (start, end) in zip(scales, spans, strict=True)]
    for axis, scale in zip(axes, scales, strict=True):
        result[axis] = _scaled(node, shape[axis], scale)
    return (tuple(result),)


def _scaled(node: Node, size: Dim, scale: float) -> Dim | None:
    """Rounded down after a product in float32, as runtimes do; for a symbol by a simple ratio."""
    if not 0 <= scale < _MOST:
        node.fail(f"a scale must be positive and below {_MOST:g}, found {scale:g}")
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(scale)) if size < _MOST else None
    ratio = Fraction(scale).limit_denominator(1000)
    if np.float32(ratio.numerator / ratio.denominator) != np.float32(scale):
        return None
    return floordiv(size * ratio.numerator, ratio.denominator)


def _scales(node: Node, index: int) -> list[float] | None:
    given = node.op.attrs.get("scales")
    if isinstance(given, tuple):
        return [float(x) for x in given if isinstance(x, (int, float))]
    return _floats(node, index)


def _floats(node: Node, index: int) -> list[float] | None:
    constant = node.scope.constant(node.op.input(index))
    array = None if constant is None else constant.small_array()
    if array is not None:
        found = [float(x) for x in array.reshape(-1).tolist()]
        return found if all(map(math.isfinite, found)) else None
    known = node.value(index)
    numbers = None if known is None else known.numbers
    return None if numbers is None else [float(n) for n in numbers]


def _kept_ratio(
    node: Node, shape: tuple[Dim, ...], axes: tuple[int, ...], result: list[Dim | None]
) -> PartialShape:
    """The sizes under ``keep_aspect_ratio_policy``: one scale for all axes, the sizes rounded."""
    policy = str(node.op.attr("keep_aspect_ratio_policy", "stretch"))
    if policy == "stretch":
        return tuple(result)
    pairs = [(shape[a], result[a]) for a in axes]
    if not all(isinstance(d, int) and isinstance(r, int) and d for d, r in pairs):
        return tuple(None if i in axes else d for i, d in enumerate(shape))
    ratios = [Fraction(int(str(r)), int(str(d))) for d, r in pairs]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        # Halves round up, as the operator's text has it.
        result[axis] = math.floor(Fraction(int(str(shape[axis]))) * scale + Fraction(1, 2))
    return tuple(result)


RULES: dict[str, Rule] = {"Resize": resize, "Upsample": resize}
