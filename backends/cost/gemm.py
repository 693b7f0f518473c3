"""Matrix multiplication on the cube cores, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost.base import L2_SHARE, padded
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

_SIDES = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)

_SPLITS = (2, 3, 4, 5, 6, 8, 12, 16)
_SHORTEST_SPLIT = 128


class Gemm(NamedTuple):
    """``batch`` products of (m, k) by (k, n), and the bytes of A, B, anything added, and C.

    ``dtype`` is what the cube multiplies in. Where one matrix serves the whole batch, fold the
    batch into m (or n) instead.
    """

    batch: int
    m: int
    n: int
    k: int
    dtype: DType
    a_bytes: float
    b_bytes: float
    extra_bytes: float
    out_bytes: float
    a_share: float = 1.0
    """How many of A's elements are there to be read: below 1 where it is cut out on the way."""


class Tiling(NamedTuple):
    """Output tiles of ``rows`` by ``columns``, ``splits`` ways along k."""

    rows: int
    columns: int
    splits: int


@lru_cache(maxsize=8192)
def gemm_demand(device: Device, gemm: Gemm) -> Demand:
    """The demand of a matrix product under the tiling that is fastest in this same model.

    Tiles. A core computes a tile of C in its accumulators (f32, L0C), while slices of A and B
    pass through L1 and L0 with two buffers each: 2 * rows * 32 bytes fit L0A, likewise L0B.
    Where kernels come in fixed shapes (``cube_tiles``), edges count as whole tiles; else the
    cube multiplies 16 by 16 by 32 bytes, and m, n, k count padded to those.

    Time. With t tiles over c cores there are w = ceil(t / c) waves, on ceil(t / w) cores, and
    every wave is as long as a whole tile: what the last one lacks is lost (wave quantisation).
    A tile takes ``tile_start_us`` (the first one's is part of the kernel's start) and the longer
    of its multiplication, 2 * rows * columns * k over the rate times the efficiency, and of its
    results' way out (``drain_bytes_per_cycle``); one that fills more than half of L0C has no
    second accumulator, so that both add up. Kernels
    of 8-bit floats have shapes, efficiency and start-up of their own: their sums are promoted
    to f32 by the vector unit every 128 steps of k. Clusters of ``f8_cluster_cores`` share what
    they read of A (multicast).

    Splits. k may be cut into s parts, each a tile of its own: s times as many tiles to fill the
    cores with. In the end the parts' f32 sums cross L2 twice, after ``split_sync_us``.

    Traffic. From L2 each tile takes its rows of A and columns of B: A passes n / columns times,
    B m / rows times, C leaves once. From HBM, A and B come once if they fit L2; else a panel of
    one stays there while the other passes, as often as there are panels.
    """
    if not all((gemm.batch, gemm.m, gemm.n)):
        return Demand()
    best = min(
        (_tiled(device, gemm, tiling) for tiling in _tilings(device, gemm)), key=lambda c: c[0]
    )
    return best[1]


def _tilings(device: Device, gemm: Gemm) -> Iterator[Tiling]:
    cores = device.cube_cores
    for rows, columns in _shapes(device, gemm.dtype) or _fitting(device, gemm):
        yield Tiling(rows, columns, 1)
        tiles = gemm.batch * -(-gemm.m // rows) * -(-gemm.n // columns)
        for splits in _SPLITS:
            if tiles * splits > 4 * cores or gemm.k // splits < _SHORTEST_SPLIT:
                break
            yield Tiling(rows, columns, splits)


def _is_f8(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= 8


def _shapes(device: Device, dtype: DType) -> tuple[tuple[int, int], ...]:
    return device.f8_shapes if _is_f8(dtype) else device.tiles


def _fitting(device: Device, gemm: Gemm) -> Iterator[tuple[int, int]]:
    """Tiles of any shape that the buffers can hold."""
    element = gemm.dtype.bits / 8
    slice_bytes = 2 * max(32.0, element)  # two buffers of the shortest slice along k
    cores = device.cube_cores
    for rows in _sides(gemm.m, cores):
        if rows * slice_bytes > device.l0a_kib * 1024:
            continue
        for columns in _sides(gemm.n, cores):
            if columns * slice_bytes > device.l0b_kib * 1024:
                continue
            if rows * columns * 4 <= device.l0c_kib * 1024:
                yield rows, columns


def _sides(size: int, cores: int) -> list[int]:
    whole = padded(size, 16)
    even = [padded(-(-size // (cores * waves)), 16) for waves in (1, 2, 3, 4)]
    return sorted({min(side, whole) for side in (*_SIDES, *even)})


def _tiled(device: Device, gemm: Gemm, tiling: Tiling) -> tuple[float, Demand]:
    element = gemm.dtype.bits / 8
    rows, columns, splits = tiling
    k = padded(gemm.k, max(1, int(32 / element))) / splits
    across, down = -(-gemm.n // columns), -(-gemm.m // rows)
    tiles = gemm.batch * across * down * splits
    waves = -(-tiles // device.cube_cores)
    cores = -(-tiles // waves)
    f8 = _is_f8(gemm.dtype)
    efficiency = device.f8_efficiency_fraction if f8 else device.cube_efficiency_fraction
    rate = device.cube_flop_per_us(gemm.dtype) * efficiency
    multiply_us = 2.0 * rows * columns * k / rate
    out_element = gemm.out_bytes / (gemm.batch * gemm.m * gemm.n) if splits == 1 else 4.0
    drain_us = (
        rows * columns * out_element / (device.drain_bytes_per_cycle * device.cube_frequency_mhz)
    )
    held = 2 * rows * columns * 4 > device.l0c_kib * 1024
    tile_us = multiply_us + drain_us if held else max(multiply_us, drain_us)
    tile_start_us = device.f8_tile_start_us if f8 else device.tile_start_us
    busy_us = waves * tile_us + (waves - 1) * tile_start_us if gemm.k else 0.0
    if _shapes(device, gemm.dtype):
        m, n = down * rows, across * columns
    else:
        m, n = padded(gemm.m, 16), padded(gemm.n, 16)
    reads_of_a = -(-across // (device.f8_cluster_cores if f8 else 1))
    read = gemm.batch * splits * (m * reads_of_a * gemm.a_share + n * down) * k * element
    slices = device.l1_kib * 1024 / 2 / ((rows + columns) * element)
    start_us = device.cube_kernel_start_us + cores * device.core_dispatch_us
    demand = Demand(
        load_bytes=_from_hbm(device, gemm) + gemm.extra_bytes,
        store_bytes=gemm.out_bytes,
        l2_bytes=read + gemm.extra_bytes + gemm.out_bytes,
        cube_us=busy_us * cores,
        cube_cores=cores,
        fixed_us=start_us + _joining_us(device, gemm, splits),
        tiles=waves * max(1, math.ceil(k / max(1.0, slices))),
    )
    return device.alone_us(demand), demand


def _joining_us(device: Device, gemm: Gemm, splits: int) -> float:
    """To add up the parts of C, once they are all there: each is written and read in f32."""
    if splits == 1:
        return 0.0
    parts = 8.0 * gemm.batch * gemm.m * gemm.n * splits
    return device.split_sync_us + parts / device.l2_bytes_per_us


def _from_hbm(device: Device, gemm: Gemm) -> float:
    """Bytes of A and B read: once, or one of them once per L2-sized panel of the other."""
    room = device.l2_mib * 2**20 * L2_SHARE
    a, b = gemm.a_bytes, gemm.b_bytes
    if (a + b) / gemm.batch <= room:
        return a + b
    panels_a = math.ceil(2 * a / gemm.batch / room)
    panels_b = math.ceil(2 * b / gemm.batch / room)
    return min(a + b * panels_a, b + a * panels_b)
