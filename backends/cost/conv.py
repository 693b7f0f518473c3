"""Convolution on the cube cores, as a matrix product whose left side is never written out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gecompiler.backends.cost.base import Sizes, Tensor, vector_demand
from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


def convolution(device: Device, op: Op, s: Sizes) -> Demand | None:
    """Conv, ConvInteger, QLinearConv, DeformConv: X (N, C, *in), W (M, C / g, *kernel).

    Implicit GEMM: per group (N * out pixels, C / g * kernel) by (that, M / g). The patches are
    cut out between L1 and L0, so that L2 hands out the input itself and not its patches; the
    channels count padded to 16 (to 4 when there are at most 4). A depthwise one wastes 15 of
    16 columns of the cube; where it is faster, the vector cores multiply and add it directly.
    """
    x, out = s.input(0), s.output()
    w = s.input(3 if op.op_type == "QLinearConv" else 1)
    if x is None or w is None or out is None or len(w.shape) < 3 or len(out.shape) < 3:
        return None
    group = _group(op)
    kernel = math.prod(w.shape[2:])
    pixels = out.shape[0] * math.prod(out.shape[2:])
    channels = w.shape[1]
    deep = max(4, channels) if channels <= 4 else channels
    cube = _implicit(device, group, pixels, w.shape[0] // group, deep * kernel, x, w, s)
    if channels > 1:
        return cube
    direct = vector_demand(device, s.load, s.store, 1.3 * out.elements * kernel, x.dtype.bits)
    return min((cube, direct), key=device.alone_us)


def transposed(device: Device, op: Op, s: Sizes) -> Demand | None:
    """ConvTranspose: X (N, C, *in), W (C, M / g, *kernel): every pixel spreads out a patch.

    Per group (N * in pixels, C / g) by (that, M / g * kernel); overlapping patches are added
    up in the accumulators.
    """
    x, w = s.input(0), s.input(1)
    if x is None or w is None or len(w.shape) < 3 or len(x.shape) < 3:
        return None
    group = _group(op)
    pixels = x.shape[0] * math.prod(x.shape[2:])
    n = w.shape[1] * math.prod(w.shape[2:])
    return _implicit(device, group, pixels, n, w.shape[0] // group, x, w, s)


def _implicit(
    device: Device, group: int, m: int, n: int, k: int, x: Tensor, w: Tensor, s: Sizes
) -> Demand:
    dtype = x.dtype if x.dtype.bits >= w.dtype.bits else w.dtype
    patches = group * m * k * dtype.bits / 8
    share = min(1.0, x.bytes / patches) if patches else 1.0
    extra = max(0.0, s.load - x.bytes - w.bytes)
    return gemm_demand(device, Gemm(group, m, n, k, dtype, x.bytes, w.bytes, extra, s.store, share))


def _group(op: Op) -> int:
    group = op.attr("group", 1)
    return group if isinstance(group, int) and group > 0 else 1
