"""What all cost formulas share: sizes of an op's tensors, and demands built from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

BYTES_PER_CORE = 8192
"""Fewest bytes moved for which another vector core is worth its start-up: in public traces of
the second generation, kernels over 1,000 floats in and out run on one core."""

L2_SHARE = 0.8
"""How much of L2 one kernel's reuse can count on; the rest streams through."""


class Tensor(NamedTuple):
    """A tensor's element type and sizes; what is not bound counts as 1."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Its size in memory, packed."""
        return self.elements * self.dtype.bits / 8


class Sizes(NamedTuple):
    """An op's inputs and outputs by position; None where absent, unknown or no tensor."""

    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    load: float
    """Bytes of all its distinct inputs."""
    store: float
    """Bytes of all its outputs."""

    def input(self, index: int) -> Tensor | None:
        """That input, None also when it is beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Tensor | None:
        """That output, None also when it is beyond the end."""
        return self.outputs[index] if index < len(self.outputs) else None

    @property
    def main(self) -> Tensor | None:
        """The first output, else the first input there is."""
        return next((t for t in (*self.outputs, *self.inputs) if t is not None), None)

    @property
    def bits(self) -> int:
        """The width of an element of the widest numeric tensor it works on, at most 64."""
        widths = [t.dtype.bits for t in (*self.inputs[:1], *self.outputs[:1]) if t is not None]
        return min(64, max(widths, default=32))


def known(graph: Graph, value: str) -> Tensor | None:
    """The value's sizes, None when it is absent, of unknown rank, or no tensor."""
    found = graph.tensor(value) if value else None
    if found is None or found.shape is None:
        return None
    return Tensor(found.dtype, tuple(d if isinstance(d, int) else 1 for d in found.shape))


def sizes(graph: Graph, op: Op) -> Sizes:
    """The sizes of an op's tensors. O(inputs + outputs)."""
    inputs = tuple(known(graph, v) for v in op.inputs)
    outputs = tuple(known(graph, v) for v in op.outputs)
    distinct = dict(zip(op.inputs, inputs, strict=True))
    return Sizes(inputs, outputs, total(distinct.values()), total(outputs))


def total(tensors: Iterable[Tensor | None]) -> float:
    """The bytes of those that are there."""
    return math.fsum(t.bytes for t in tensors if t is not None)


def padded(size: int, step: int) -> int:
    """``size`` rounded up to a multiple of ``step``."""
    return -(-size // step) * step


def vector_demand(
    device: Device,
    load: float,
    store: float,
    passes: float,
    bits: int = 32,
    *,
    rows: int | None = None,
    latency_us: float = 0.0,
    efficiency: float = 1.0,
) -> Demand:
    """A kernel of the vector cores.

    ``passes`` counts elements through a full-rate instruction, so that vector time is passes
    / lanes. A kernel that keeps only ``efficiency`` of the memory bandwidth in flight holds its
    cores for as long as that takes; so does any that could draw more from L2 than it has requests
    in flight for (``vector_l2_efficiency_fraction``). Work is dealt out in pieces of at least
    `BYTES_PER_CORE`, and never more pieces than ``rows`` where rows cannot be cut. Each core
    streams its part through the unified buffer in halves (double buffering), which gives the
    number of tiles.
    """
    moved = load + store
    pieces = max(1, math.ceil(moved / BYTES_PER_CORE))
    cores = min(device.vector_cores, pieces, max(1, rows) if rows is not None else pieces)
    vector_us = passes / device.vector_lanes_per_us(bits)
    if efficiency < 1.0:
        draw = device.hbm_bytes_per_us / device.vector_cores * efficiency
        vector_us = max(vector_us, moved / draw)
    if device.vector_l2_efficiency_fraction < 1.0:
        share = device.l2_bytes_per_us / device.vector_cores * device.vector_l2_efficiency_fraction
        vector_us = max(vector_us, moved / share)
    return Demand(
        load_bytes=load,
        store_bytes=store,
        l2_bytes=moved,
        vector_us=vector_us,
        vector_cores=cores,
        fixed_us=device.vector_kernel_start_us + cores * device.core_dispatch_us + latency_us,
        tiles=max(1, math.ceil(moved / cores / (device.ub_kib * 1024 / 2))),
    )


def serial(device: Device, demands: Iterable[Demand], times: float = 1.0) -> Demand:
    """Kernels that follow each other as one task, ``times`` over: what they need, added up.

    What overlaps in the sum but did not among the parts is added to the fixed time, so that
    the time alone is the sum of the parts' times and the gaps between them.
    """
    parts = [d for d in demands if d != Demand()]
    if not parts or times <= 0:
        return Demand()
    alone = math.fsum(device.alone_us(d) for d in parts) * times
    alone += (len(parts) * times - 1) * device.task_gap_us
    links: dict[str, float] = {}
    for link, amount in (pair for d in parts for pair in d.link_bytes):
        links[link] = links.get(link, 0.0) + amount * times
    merged = Demand(
        load_bytes=math.fsum(d.load_bytes for d in parts) * times,
        store_bytes=math.fsum(d.store_bytes for d in parts) * times,
        l2_bytes=math.fsum(d.l2_bytes for d in parts) * times,
        cube_us=math.fsum(d.cube_us for d in parts) * times,
        vector_us=math.fsum(d.vector_us for d in parts) * times,
        cube_cores=max(d.cube_cores for d in parts),
        vector_cores=max(d.vector_cores for d in parts),
        link_bytes=tuple(links.items()),
        tiles=max(1, int(sum(d.tiles for d in parts) * min(times, 1e6))),
    )
    return replace(merged, fixed_us=max(0.0, alone - device.alone_us(merged)))
