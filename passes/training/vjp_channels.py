"""Gradients of norms over what a sample has of a channel, or of a group of channels."""

from __future__ import annotations

import math

from gecompiler.ir.types import DType
from gecompiler.passes.training.site import Gradients, Rule, Site


def _instance_norm(site: Site) -> Gradients:
    return _grouped(site, site.shape(0)[1])


def _group_norm(site: Site) -> Gradients:
    return _grouped(site, int(site.op.attr("num_groups", 1)))


def _grouped(site: Site, groups: int) -> Gradients:
    """Of x seen as (B, groups, rest); scale and shift are by channel.

    With r = 1 / deviation, n = (x - mean) r and g = dY scale, dX = r (g - mean(g) - n mean(g n)).
    """
    t, shape = site.tape, site.shape(0)
    epsilon = float(site.op.attr("epsilon", 1e-5))
    flat = (shape[0], groups, math.prod(shape[1:]) // groups)
    narrow, channels = t.dtype(site.op.inputs[0]), (shape[1], *(1,) * (len(shape) - 2))
    wide = DType.F64 if narrow is DType.F64 else DType.F32
    x = t.reshape(t.cast(site.x(0), wide), flat)
    centred = t.binary("Sub", x, t.reduce("ReduceMean", x, [2], keep=True))
    variance = t.reduce("ReduceMean", t.mul(centred, centred), [2], keep=True)
    deviation = t.unary("Sqrt", t.shifted(variance, epsilon))
    normal = t.binary("Div", centred, deviation)
    dy, found = t.cast(site.dy, wide), {}
    if site.wants(0):
        scale = t.reshape(t.cast(site.x(1), wide), channels)
        g = t.reshape(t.mul(dy, scale), flat)
        along = t.mul(normal, t.reduce("ReduceMean", t.mul(g, normal), [2], keep=True))
        level = t.reduce("ReduceMean", g, [2], keep=True)
        inner = t.binary("Sub", t.binary("Sub", g, level), along)
        dx = t.reshape(t.binary("Div", inner, deviation), shape)
        found[0] = t.cast(dx, narrow)
    for index in (1, 2):
        if site.wants(index):
            made = t.mul(dy, t.reshape(normal, shape)) if index == 1 else dy
            over = [i for i in range(len(shape)) if i != 1]
            total = t.reduce("ReduceSum", made, over)
            found[index] = t.cast(total, t.dtype(site.op.inputs[index]))
    return found


RULES: dict[str, Rule] = {
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
}
"""Rules by `Op.kind`."""
