"""Matrix multiplication on the cube cores, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost_base import padded
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

L2_SHARE = 0.8
"""How much of L2 one kernel's reuse can count on; the rest streams through."""

_SIDES = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)


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
    The cube multiplies 16 by 16 by 32 bytes, so m, n, k count padded to those.

    Time. With t tiles over c cores there are w = ceil(t / c) waves, on ceil(t / w) cores. Cube
    time is the padded work over those cores; what the last wave lacks to a full one is idle
    time of the task (fixed). A tile that fills more than half of L0C has no second
    accumulator, so that its store holds up the next tile: w stores are fixed time as well.

    Traffic. From L2 each tile takes its rows of A and columns of B: A passes n / columns times,
    B m / rows times, C leaves once (f32 partial sums per split when k is split). From HBM, A
    and B come once if they fit L2; else a panel of one stays there while the other passes, as
    often as there are panels.
    """
    if not all((gemm.batch, gemm.m, gemm.n)):
        return Demand()
    best = min(
        (_tiled(device, gemm, tiling) for tiling in _tilings(device, gemm)), key=lambda c: c[0]
    )
    return best[1]


def _tilings(device: Device, gemm: Gemm) -> Iterator[Tiling]:
    element = gemm.dtype.bits / 8
    slice_bytes = 2 * max(32.0, element)  # two buffers of the shortest slice along k
    cores = device.cube_cores
    for rows in _sides(gemm.m, cores):
        if rows * slice_bytes > device.l0a_kib * 1024:
            continue
        for columns in _sides(gemm.n, cores):
            if columns * slice_bytes > device.l0b_kib * 1024:
                continue
            if rows * columns * 4 > device.l0c_kib * 1024:
                continue
            yield Tiling(rows, columns, 1)
            tiles = gemm.batch * -(-gemm.m // rows) * -(-gemm.n // columns)
            splits = 2
            while tiles * splits <= cores and gemm.k // splits >= 256:
                yield Tiling(rows, columns, splits)
                splits *= 2


def _sides(size: int, cores: int) -> list[int]:
    whole = padded(size, 16)
    even = [padded(-(-size // (cores * waves)), 16) for waves in (1, 2, 3, 4)]
    return sorted({min(side, whole) for side in (*_SIDES, *even)})


def _tiled(device: Device, gemm: Gemm, tiling: Tiling) -> tuple[float, Demand]:
    element = gemm.dtype.bits / 8
    rows, columns, splits = tiling
    k = padded(gemm.k, max(1, int(32 / element)))
    m, n = padded(gemm.m, 16), padded(gemm.n, 16)
    across, down = -(-gemm.n // columns), -(-gemm.m // rows)
    tiles = gemm.batch * across * down * splits
    waves = -(-tiles // device.cube_cores)
    cores = -(-tiles // waves)
    rate = device.cube_flop_per_us(gemm.dtype)
    cube_us = gemm.batch * 2.0 * m * n * k / rate
    tile_us = 2.0 * rows * columns * k / splits / rate
    idle_us = max(0.0, waves * tile_us - cube_us / cores)
    out_element = gemm.out_bytes / max(1, gemm.batch * gemm.m * gemm.n) if splits == 1 else 4.0
    write_rate = device.l2_write_bytes_per_cycle * device.cube_frequency_mhz
    store_us = rows * columns * out_element / write_rate
    held_us = waves * store_us if 2 * rows * columns * 4 > device.l0c_kib * 1024 else 0.0
    out_l2 = gemm.out_bytes if splits == 1 else 4.0 * gemm.batch * gemm.m * gemm.n * splits
    slices = device.l1_kib * 1024 / 2 / ((rows + columns) * element)
    demand = Demand(
        load_bytes=_from_hbm(device, gemm) + gemm.extra_bytes,
        store_bytes=gemm.out_bytes,
        l2_bytes=gemm.batch * (m * across * gemm.a_share + n * down) * k * element
        + gemm.extra_bytes
        + out_l2,
        cube_us=cube_us,
        cube_cores=cores,
        fixed_us=device.cube_kernel_start_us + cores * device.core_dispatch_us + idle_us + held_us,
        tiles=waves * max(1, math.ceil(k / splits / max(1.0, slices))),
    )
    return device.alone_us(demand), demand


def _from_hbm(device: Device, gemm: Gemm) -> float:
    """Bytes of A and B read: once, or one of them once per L2-sized panel of the other."""
    room = device.l2_mib * 2**20 * L2_SHARE
    a, b = gemm.a_bytes, gemm.b_bytes
    if (a + b) / gemm.batch <= room:
        return a + b
    panels_a = math.ceil(2 * a / gemm.batch / room)
    panels_b = math.ceil(2 * b / gemm.batch / room)
    return min(a + b * panels_a, b + a * panels_b)
