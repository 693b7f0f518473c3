"""Gradients of pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.op import Attr
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.training.site import Gradients, Rule, Site
from gecompiler.passes.training.vjp_conv import pads_of


def _average_pool(site: Site) -> Gradients:
    """Each result's share goes to what it is the mean of: a convolution with ones, backwards."""
    t, op, shape = site.tape, site.op, site.shape(0)
    kernel = tuple(op.attr("kernel_shape"))
    axes = _axes(site, kernel)
    counts: Array = np.ones((1, 1), np.float64)
    for along in axes:
        counts = counts[..., None] * along.counts(bool(op.attr("count_include_pad", 0)))
    kind = t.dtype(op.inputs[0])
    share = t.binary("Div", site.dy, t.constant(counts.astype(kind.numpy)))
    ones = t.constant(np.ones((shape[1], 1, *kernel), kind.numpy))
    attrs: dict[str, Attr] = {
        "strides": tuple(along.stride for along in axes),
        "dilations": tuple(along.dilation for along in axes),
        "pads": (*(along.before for along in axes), *(along.reach for along in axes)),
        "group": shape[1],
        "shape": shape,
    }
    return {0: t.own("ConvGradInput", [share, ones], site.type(0), attrs=attrs)[0]}


@dataclass(frozen=True)
class _Along:
    """One spatial axis: sizes of the input and the output, and how windows lie on it."""

    size: int
    made: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """The padding behind the input that the last window reaches over (``ceil_mode``)."""
        end = (self.made - 1) * self.stride + self.dilation * (self.taps - 1) + 1
        return max(self.after, end - self.size - self.before)

    def counts(self, padded: bool) -> Array:
        """Of how many elements each result is the mean; padding counts where it is given."""
        first = np.arange(self.made) * self.stride - self.before
        at = first[:, None] + np.arange(self.taps) * self.dilation
        low, high = (-self.before, self.size + self.after) if padded else (0, self.size)
        found: Array = ((at >= low) & (at < high)).sum(axis=1)
        return found


def _axes(site: Site, kernel: tuple[int, ...]) -> list[_Along]:
    op, count = site.op, len(kernel)
    strides = tuple(op.attr("strides") or (1,) * count)
    dilations = tuple(op.attr("dilations") or (1,) * count)
    pads = pads_of(site, kernel, strides, dilations)
    made = site.tape.shape(op.outputs[0])[2:]
    every = (site.shape(0)[2:], made, kernel, strides, dilations, pads[:count], pads[count:])
    return [_Along(*numbers) for numbers in zip(*every, strict=True)]


def _max_pool(site: Site) -> Gradients:
    """To the element that was the highest, the first where several are."""
    t, op, shape = site.tape, site.op, site.shape(0)
    if t.opset < 16:
        site.fail(f"in opset {t.opset} has no gradient here, from 16 on it has")
    if op.attr("storage_order", 0):
        site.fail("with storage_order has no gradient here")
    made = t.shape(op.outputs[0])
    places = TensorType(DType.I64, made)
    highest = TensorType(t.dtype(op.inputs[0]), made)
    _, index = t.emit("MaxPool", [site.x(0)], highest, places, attrs=op.attrs)
    flat = TensorType(t.dtype(op.inputs[0]), (math.prod(shape),))
    every = (math.prod(made),)
    inputs = [t.zeros(flat), t.reshape(index, every), t.reshape(site.dy, every)]
    total = t.emit("ScatterElements", inputs, flat, attrs={"axis": 0, "reduction": "add"})[0]
    return {0: t.reshape(total, shape)}


RULES: dict[str, Rule] = {"AveragePool": _average_pool, "MaxPool": _max_pool}
"""Rules by `Op.kind`."""
