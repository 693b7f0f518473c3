"""Readers of measured collectives."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fidelity_common import LeaveOut, Record, count, device_of, microseconds
from benchmarks.fidelity_rows import Row, collective

COLLECTIVES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "alltoall": "AllToAll",
    "send_recv": "Send",
}


def collective_row(data: str, device: str, kind: str, size: int, cards: int, us: float) -> Row:
    if kind not in COLLECTIVES:
        raise LeaveOut(f"collective {kind}")
    family = "collective_over_1mb" if size > 1_000_000 else "collective_under_1mb"
    case = collective(COLLECTIVES[kind], size, cards)
    return Row(data, family, device, f"{kind},{size},{cards}", us, case)


def aiconfigurator_nccl(data: str, r: Record) -> Iterator[Row]:
    """Sizes are counted in elements of two bytes."""
    size, cards = 2 * count(r, "message_size"), count(r, "num_gpus")
    us = microseconds(r, "latency_ms", 1e3)
    yield collective_row(data, device_of(r["device"]), r["op_name"], size, cards, us)


def vidur_network(data: str, r: Record) -> Iterator[Row]:
    """Sizes in bytes; only what stays within one server."""
    cards, near = count(r, "num_workers"), count(r, "devices_per_node")
    if cards > near:
        raise LeaveOut("between servers")
    us = microseconds(r, "median_ms", 1e3)
    yield collective_row(
        data, device_of(r["network"]), r["collective"], count(r, "size"), cards, us
    )
