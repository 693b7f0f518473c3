"""Ops with bodies, ops of the control CPU, and collectives between cards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.cost.base import Sizes, known, serial, total
from gecompiler.backends.topology import default_topology
from gecompiler.ir.collective_ops import ALL_GATHER, BROADCAST, COLLECTIVES, POINT_TO_POINT, RECV
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


_KINDS = {kind.lower(): kind for kind in COLLECTIVES}


def collective(device: Device, op: Op, s: Sizes) -> Demand:
    """One card's part of a collective over n cards, linked as is usual for the device.

    The cost is `gecompiler.backends.collectives`'s on the device's default topology; what is
    sent counts on the links of the card as a whole. n is the attribute ``group_size``; unknown,
    as many as a usual server has. With a topology of its own a `Cluster` answers instead.
    """
    size = op.attr("group_size", op.attr("world_size", 0))
    name = op.op_type.lower().replace("_", "")
    kind = next((kind for word, kind in _KINDS.items() if word in name), BROADCAST)
    given = size if isinstance(size, int) and size > 0 else 0
    cards = 2 if kind in POINT_TO_POINT else given
    topology = default_topology(device, cards or 2)
    group = tuple(range(cards or min(topology.cards, _SERVER)))
    message = total(s.outputs) if kind in (ALL_GATHER, RECV) else total(s.inputs)
    main = s.main
    adding = device.vector_lanes_per_us(s.bits) * max(8, s.bits) / 8 if main else 0.0
    cost = collective_cost(topology, kind, group, message or total(s.inputs))
    found = cost.demand(0, adding)
    sent = found.least_us * device.link_bytes_per_us("hccs")
    return replace(found, link_bytes=(("hccs", min(sent, cost.sent_bytes)),) if sent else ())


_SERVER = 8
"""Cards of a usual server."""
