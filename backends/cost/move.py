"""Ops that only move data: copies, transposes, gathers and scatters, resampling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gecompiler.backends.cost.base import Sizes, padded, vector_demand
from gecompiler.backends.cost.vector import PASSES
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

ISSUE_CYCLES = 16
"""Cycles to issue one transfer of a strided or indexed piece."""

_SAMPLE_PASSES = 4 * 12.0 + 8.0
"""Four neighbours gathered within the buffer (12 passes each), and their weighting."""


def copying(device: Device, op: Op, s: Sizes) -> Demand:
    """Concat, Split, Slice, Pad, Expand, Tile, ...: what goes out is written, what is needed read.

    A slice reads only what it keeps; what is repeated is read once.
    """
    load = min(s.load, s.store) if op.op_type in ("Slice", "Split") else s.load
    return vector_demand(device, load, s.store, 0.0)


def filling(device: Device, op: Op, s: Sizes) -> Demand:
    """ConstantOfShape, Range, OneHot, ...: writes only."""
    main = s.output()
    return vector_demand(device, 0.0, s.store, float(main.elements if main else 0), s.bits)


def transposing(device: Device, op: Op, s: Sizes) -> Demand:
    """Transpose, DepthToSpace, SpaceToDepth.

    Runs that stay together for at least one memory access are moved by strided copies, one
    issue each; shorter ones are turned in the buffer in 16 by 16 pieces, 2 passes an element.
    """
    x = s.input(0)
    if x is None:
        return vector_demand(device, s.load, s.store, 0.0)
    run = _run(op, x.shape) * x.dtype.bits / 8
    if run >= device.hbm_access_bytes:
        return vector_demand(device, s.load, s.store, _issues(device, x.bytes / run))
    return vector_demand(device, s.load, s.store, 2.0 * x.elements, x.dtype.bits)


def _run(op: Op, shape: tuple[int, ...]) -> int:
    """Elements at the end of the shape that keep their order."""
    if op.op_type != "Transpose":
        return 1
    perm = op.attr("perm", tuple(reversed(range(len(shape)))))
    if not isinstance(perm, tuple) or sorted(perm) != list(range(len(shape))):
        return 1
    run = 1
    for axis in range(len(shape) - 1, -1, -1):
        if perm[axis] != axis:
            break
        run *= shape[axis]
    return run


def _issues(device: Device, count: float) -> float:
    """That many issues in units of full-rate f32 passes."""
    return count * ISSUE_CYCLES * device.vector_bytes_per_cycle / 4


def gathering(device: Device, op: Op, s: Sizes) -> Demand:
    """Gather, GatherND, GatherElements: rows of a table, each a transfer of its own.

    From HBM come the rows asked for, rounded up to whole accesses, or the whole table if that
    is less and it fits L2. An embedding thus reads as many rows as there are tokens.
    """
    table, indices, out = s.input(0), s.input(1), s.output()
    if table is None or indices is None or out is None:
        return vector_demand(device, s.load, s.store, 0.0)
    row, count = _row_bytes(op, table.shape, table.dtype.bits / 8, indices.shape, out.elements)
    wanted = count * padded(max(1, math.ceil(row)), device.hbm_access_bytes)
    fits = table.bytes <= device.l2_mib * 2**20
    load = (min(wanted, table.bytes) if fits else float(wanted)) + indices.bytes
    pace = device.gather_efficiency_fraction
    demand = vector_demand(device, load, s.store, _issues(device, count), efficiency=pace)
    return replace(demand, l2_bytes=wanted + indices.bytes + s.store)


def _row_bytes(
    op: Op, table: tuple[int, ...], element: float, indices: tuple[int, ...], out: int
) -> tuple[float, int]:
    """Bytes of one contiguous row and how many rows are taken."""
    if op.op_type == "GatherElements" or not table:
        return element, out
    if op.op_type == "GatherND":
        depth = indices[-1] if indices else 1
        row = math.prod(table[depth + int(op.attr("batch_dims", 0)) :])
    else:
        axis = op.attr("axis", 0)
        row = math.prod(table[axis % len(table) + 1 :]) if isinstance(axis, int) else 1
    return row * element, out // row if row else 0


def scattering(device: Device, op: Op, s: Sizes) -> Demand:
    """ScatterND, ScatterElements: the data is copied, then the updates written over it."""
    updates, data = s.input(2), s.input(0)
    if updates is None or data is None:
        return vector_demand(device, s.load, s.store, 0.0)
    depth = 0
    indices = s.input(1)
    if op.op_type == "ScatterND" and indices is not None and indices.shape:
        depth = indices.shape[-1]
    row = math.prod(data.shape[depth:]) if depth else 1
    count = updates.elements // row if row else 0
    spread = count * padded(max(1, math.ceil(row * data.dtype.bits / 8)), device.hbm_access_bytes)
    return vector_demand(device, s.load, s.store + spread, _issues(device, count))


def sampling(device: Device, op: Op, s: Sizes) -> Demand:
    """Resize, GridSample, RoiAlign: four weighted neighbours per output element, or one."""
    out = s.output()
    nearest = op.attr("mode", "nearest") == "nearest" and op.op_type in ("Resize", "Upsample")
    each = PASSES["Where"] if nearest else _SAMPLE_PASSES
    return vector_demand(device, s.load, s.store, each * (out.elements if out else 0), s.bits)


def host_copy(device: Device, op: Op, s: Sizes) -> Demand:
    """MemcpyFromHost, MemcpyToHost: one transfer by a copy engine, which needs no core.

    The bytes cross PCIe, and are written to device memory, or read from it, as they come; before
    the first stands ``pcie_latency_us``.
    """
    inward = op.op_type == "MemcpyFromHost"
    moved = s.store if inward else s.load
    return Demand(
        load_bytes=0.0 if inward else moved,
        store_bytes=moved if inward else 0.0,
        link_bytes=(("pcie", moved),) if moved else (),
        fixed_us=device.pcie_latency_us,
        tiles=max(2, int(moved // 2**20)),
    )
