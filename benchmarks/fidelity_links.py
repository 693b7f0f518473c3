"""Readers of measured collectives: which cards of which topology took part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.fidelity_common import LeaveOut, Record, count, device_of, microseconds
from benchmarks.fidelity_rows import Collective, Row, collective

COLLECTIVES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "alltoall": "AllToAll",
    "send_recv": "Send",
}


@dataclass(frozen=True)
class Platform:
    """How measured cards were linked."""

    device: str
    topology: str
    server: int
    """Cards of a server of the topology."""


PLATFORMS = {
    "a100_dgx": Platform("a100", "a100-servers", 8),
    "a100_pairwise_nvlink": Platform("a100", "a100-pairs", 4),
    "h100_dgx": Platform("h100", "dgx-h100", 8),
}
"""By the names of vidur's networks."""


def collective_row(
    data: str, kind: str, size: int, us: float, device: str, case: Collective
) -> Row:
    family = "collective_over_1mb" if size > 1_000_000 else "collective_under_1mb"
    near = f",{case.topology} {' '.join(map(str, case.cards))}" if case.topology else ""
    shape = f"{kind},{size},{len(case.cards)}{near}"
    return Row(data, family, device, shape, us, collective(case))


def op_type_of(kind: str) -> str:
    """The collective of that name; LeaveOut when there is none."""
    if kind not in COLLECTIVES:
        raise LeaveOut(f"collective {kind}")
    return COLLECTIVES[kind]


def aiconfigurator_nccl(data: str, r: Record) -> Iterator[Row]:
    """Sizes are counted in elements of two bytes; all cards in one server."""
    size, cards = 2 * count(r, "message_size"), count(r, "num_gpus")
    kind, device = r["op_name"], device_of(r["device"])
    us = microseconds(r, "latency_ms", 1e3)
    if cards > 8:
        raise LeaveOut("between servers of unknown links")
    case = Collective(op_type_of(kind), float(size), tuple(range(cards)))
    yield collective_row(data, kind, size, us, device, case)


def vidur_network(data: str, r: Record) -> Iterator[Row]:
    """Sizes in bytes; ``devices_per_node`` cards of each of several servers."""
    cards, near = count(r, "num_workers"), count(r, "devices_per_node")
    platform = PLATFORMS.get(r["network"].lower())
    kind, size = r["collective"], count(r, "size")
    us = microseconds(r, "median_ms", 1e3)
    if platform is None:  # another of the same cards, taken to be linked as usual
        if cards > near:
            raise LeaveOut("between servers of unknown links")
        case = Collective(op_type_of(kind), float(size), tuple(range(cards)))
        yield collective_row(data, kind, size, us, device_of(r["network"]), case)
        return
    places = tuple(c // near * platform.server + c % near for c in range(cards))
    if near > platform.server or (cards > near and platform.topology != "a100-servers"):
        raise LeaveOut("between servers of unknown links")
    case = Collective(op_type_of(kind), float(size), places, platform.topology)
    yield collective_row(data, kind, size, us, platform.device, case)
