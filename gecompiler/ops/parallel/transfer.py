"""How long what ranks send each other takes, by the collectives that move it."""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.backends.collectives import collective_cost
from gecompiler.backends.device import Device
from gecompiler.backends.topology import default_topology
from gecompiler.ir.collective_ops import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, SEND

COLLECTIVES = {
    "all-gather": ALL_GATHER,
    "reduce-scatter": REDUCE_SCATTER,
    "all-to-all": ALL_TO_ALL,
}
"""By the last words of what bytes belong to; other bytes go from one rank to another."""


def transfer_us(device: Device, sent: Mapping[str, int], ranks: int) -> float:
    """Microseconds, one collective after the other, on the device's usual topology.

    ``sent`` are a rank's bytes by what they belong to (``output: all-gather``). A rank sends all
    of its message but its own part, round a ring (``key: ring``) as much in every step.
    """
    if ranks < 2:
        return 0.0
    topology, cards = default_topology(device, ranks), tuple(range(ranks))
    total = 0.0
    for what, amount in sent.items():
        way = what.rpartition(": ")[2]
        if way in COLLECTIVES:
            message = amount * ranks / (ranks - 1)
            total += collective_cost(topology, COLLECTIVES[way], cards, message).us
        elif amount:
            steps = ranks - 1 if way == "ring" else 1
            total += steps * collective_cost(topology, SEND, cards[:2], amount / steps).us
    return total
