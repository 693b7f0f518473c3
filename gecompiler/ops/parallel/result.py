"""What a parallel attention gives, and the checks that all of them make."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gecompiler.backends.counters import AttentionCounters, listeners
from gecompiler.backends.device import Device
from gecompiler.backends.kernels.attention_counters import count
from gecompiler.backends.kernels.recording import record
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ops.devices import device_named
from gecompiler.ops.layouts import heads_first
from gecompiler.ops.parallel.ranks import Ranks
from gecompiler.ops.parallel.transfer import transfer_us
from gecompiler.ops.request import Request, options_of, read_request


class RankReport(NamedTuple):
    """One rank's share."""

    sent: tuple[tuple[str, int], ...]
    """Bytes sent to other ranks, by what they belong to."""
    received: tuple[tuple[str, int], ...]
    """Bytes received."""
    kv_bytes: int
    """The most bytes of keys and values that it held at once."""
    counters: AttentionCounters
    """Of its attention, alone on its device."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent in all."""
        return sum(amount for _, amount in self.sent)

    @property
    def received_bytes(self) -> int:
        """Bytes received in all."""
        return sum(amount for _, amount in self.received)


@dataclass(frozen=True)
class ParallelAttention:
    """The result and what every rank did for it."""

    algorithm: str
    out: Array | None
    """In the query's layout; None where only shapes were given."""
    ranks: tuple[RankReport, ...]
    transfer_us: float = 0.0
    """Modelled time of the collectives that move what the busiest rank sends, one after the other,
    between cards of the device linked as usual; see `Cluster` for others."""

    @property
    def sent_bytes(self) -> int:
        """The most bytes that any rank sends."""
        return max(rank.sent_bytes for rank in self.ranks)

    @property
    def received_bytes(self) -> int:
        """The most bytes that any rank receives."""
        return max(rank.received_bytes for rank in self.ranks)

    @property
    def total_bytes(self) -> int:
        """Bytes that all ranks send together."""
        return sum(rank.sent_bytes for rank in self.ranks)

    @property
    def kv_bytes(self) -> int:
        """The most bytes of keys and values that any rank holds."""
        return max(rank.kv_bytes for rank in self.ranks)

    @property
    def compute_us(self) -> float:
        """Modelled time of the slowest rank's attention."""
        return max(rank.counters.time_us for rank in self.ranks)

    @property
    def balance(self) -> float:
        """Mean over largest number of flops of a rank: 1 where all do the same."""
        flops = [rank.counters.flops for rank in self.ranks]
        return sum(flops) / (len(flops) * max(flops)) if max(flops) else 1.0


def read_parallel(
    arrays: tuple[Array, Array, Array], head_num: int, options: Mapping[str, Any], where: str
) -> Request:
    """The call; UsageError for what is not defined over ranks, or does not fit."""
    asked = options_of(head_num, options, where)
    if asked.block_mask is not None:
        refuse("block_mask is not defined over ranks", where, "give a mask of elements")
    if str(asked.input_layout).upper() == "TND":
        refuse("layout TND is not defined over ranks", where, "one call a sequence")
    return read_request(*arrays, asked, where)


MOST_RANKS = 1024
"""Algorithms send each rank's part to every other, which is counted one by one."""


def check_ranks(ranks: Any, where: str) -> int:
    """The number of ranks."""
    whole = isinstance(ranks, int | np.integer) and not isinstance(ranks, bool)
    if not whole or ranks < 1:
        refuse(f"ranks must be a positive integer, found {ranks!r}", where)
    if ranks > MOST_RANKS:
        refuse(f"{ranks} ranks are more than the {MOST_RANKS} that are simulated", where)
    return int(ranks)


def check_choice(value: str, known: tuple[str, ...], name: str, where: str) -> str:
    """The value, if it is known."""
    if value not in known:
        refuse(f"{name} {value!r} is not known", where, nearest(str(value), known))
    return value


def refuse(message: str, where: str, hint: str = "") -> NoReturn:
    """Raises a UsageError."""
    raise UsageError(message, where=where, hint=hint)


def finish(
    name: str,
    request: Request,
    ranks: Ranks,
    out: Array,
    started_ns: int,
    device: str | Device | None,
) -> ParallelAttention:
    """Puts the output (B, N, S, Dv) into the caller's layout and counts."""
    model = device_named(device)
    (piece,) = request.pieces
    result: Array | None = None
    if not ranks.dry:
        result = np.empty(request.out_shape, out.dtype)
        heads_first(result, request.layout, request.out.heads)[...] = out
    reports = []
    share_ns = (time.perf_counter_ns() - started_ns) // ranks.count
    for number, rank in enumerate(ranks.all):
        if listeners() and not ranks.dry:  # the host did the work of all, one after the other
            arrays = (piece.q, piece.k, piece.v, request.mask)
            record(name, rank.parts, arrays, (), started_ns + number * share_ns, host_ns=share_ns)
        counters = count(model, rank.parts, op=name)
        sent, received = tuple(rank.sent.items()), tuple(rank.received.items())
        reports.append(RankReport(sent, received, rank.kv_bytes, counters))
    busiest = max(ranks.all, key=lambda rank: sum(rank.sent.values()))
    moving = transfer_us(model, busiest.sent, ranks.count)
    return ParallelAttention(name, result, tuple(reports), moving)
