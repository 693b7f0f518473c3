"""Ops with bodies, ops of the control CPU, and collectives between cards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gecompiler.backends.cost.base import Sizes, known, serial, total
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

MAX_DEPTH = 8
"""Bodies within bodies beyond this count as nothing."""

_CPU_BYTES_PER_US = 2000.0
"""What one control core moves: about 2 GB/s, element by element."""


def with_bodies(device: Device, graph: Graph, op: Op, depth: int) -> Demand:
    """If, Loop, Scan: the body's ops one after the other, as often as it runs.

    An If costs its dearer branch. A Loop runs as often as its constant trip count says, and
    once where that is not known; a Scan once per slice of its first scanned input.
    """
    if depth >= MAX_DEPTH:
        return Demand()
    costs = [_body(device, body, depth + 1) for body in op.bodies]
    if not costs:
        return Demand()
    if op.op_type == "If":
        return max(costs, key=device.alone_us)
    return serial(device, costs, _trips(graph, op))


def _body(device: Device, body: Graph, depth: int) -> Demand:
    from gecompiler.backends.cost.model import demand

    return serial(device, [demand(device, body, op, depth) for op in body.ops])


def _trips(graph: Graph, op: Op) -> float:
    if op.op_type == "Loop":
        constant = graph.constant(op.input(0))
        count = constant.scalar() if constant is not None else None
        return max(0.0, float(count)) if count is not None else 1.0
    if op.op_type == "Scan":
        scanned = op.attr("num_scan_inputs", 0)
        if isinstance(scanned, int) and 0 < scanned <= len(op.inputs):
            first = known(graph, op.inputs[-scanned])
            axes = op.attr("scan_input_axes", ())
            axis = axes[0] if isinstance(axes, tuple) and axes else 0
            if first is not None and first.shape and isinstance(axis, int):
                return float(first.shape[axis % len(first.shape)])
    return 1.0


def on_cpu(device: Device, op: Op, s: Sizes) -> Demand:
    """An op of the control CPU: its start-up, and every byte through one core."""
    moved = s.load + s.store
    return Demand(
        load_bytes=s.load,
        store_bytes=s.store,
        l2_bytes=moved,
        fixed_us=device.aicpu_start_us + moved / _CPU_BYTES_PER_US,
    )


def collective(device: Device, op: Op, s: Sizes) -> Demand:
    """One card's part of a collective over n cards that are meshed fully.

    Traffic. Each card sends: all-reduce 2 (n-1)/n of its tensor (reduce-scatter, then
    all-gather), all-gather (n-1)/n of the result, reduce-scatter and all-to-all (n-1)/n of the
    input, broadcast, send and receive the tensor itself. Its own nth part it copies, through
    the same channels, which hold the link no less: counted as bytes of the link at
    ``collective_copy_gb_per_s``. What is sent is read from HBM and what is received written
    there. n is the attribute ``group_size``; unknown, the fractions count as 1.

    Time. Data flow in c pieces through d phases (reduce-scatter and all-gather make 2), in the
    time w on the link and a latency l (``collective_piece_us``) per piece: (c + d) (w / c + l).
    The best c gives w + 2 sqrt(w d l); once the pieces are as large as the buffers allow (b),
    w + d b + l w / b. Before that the first piece passes every card: ``hccs_latency_us`` for
    each phase, or on a ring for each of its n - 1 hops. What exceeds w is fixed time. Send and
    receive pass nothing on: many pieces are under way at once.
    """
    size = op.attr("group_size", op.attr("world_size", 0))
    cards = size if isinstance(size, int) and size > 1 else 0
    share = (cards - 1) / cards if cards else 1.0
    name = op.op_type.lower().replace("_", "")
    inputs, outputs = total(s.inputs), total(s.outputs)
    own, steps = 0.0, 1
    if "allreduce" in name:
        sent, steps, own = 2.0 * share * inputs, 2, inputs
    elif "allgather" in name:
        sent = share * max(outputs, inputs)
        own = max(outputs, inputs)
    elif "reducescatter" in name or "alltoall" in name:
        sent, own = share * inputs, inputs
    else:
        sent, steps = max(inputs, outputs), 1 if "broadcast" in name else 0
    copied = own / cards if cards else 0.0
    rate = device.link_bytes_per_us("hccs")
    carried = sent + copied * rate / (device.collective_copy_gb_per_s * 1e3)
    return Demand(
        load_bytes=sent,
        store_bytes=sent,
        l2_bytes=2.0 * sent,
        link_bytes=(("hccs", carried),) if carried else (),
        fixed_us=device.collective_start_us
        + device.hccs_latency_us * _hops(device, name, steps, cards)
        + _pipeline_us(device, carried / rate, steps),
        tiles=max(2, int(sent // 2**20)),
    )


def _hops(device: Device, name: str, phases: int, cards: int) -> int:
    """How many links the first piece crosses one after the other."""
    if not device.collective_ring or not cards or not phases or "alltoall" in name:
        return max(1, phases)
    return phases * (cards - 1)


def _pipeline_us(device: Device, link_us: float, phases: int) -> float:
    """What the pipeline of pieces adds to the time on the link."""
    latency = device.collective_piece_us
    if not latency or not phases:
        return 0.0
    piece_us = device.collective_chunk_mib * 2**20 / device.link_bytes_per_us("hccs")
    best_us = math.sqrt(link_us * latency / phases)  # the best piece's time on the link
    if best_us <= piece_us:
        return 2.0 * math.sqrt(link_us * phases * latency)
    return phases * piece_us + latency * link_us / piece_us
