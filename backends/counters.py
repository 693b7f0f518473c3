"""What a profiler on the card would show of an operator: counters, and where they are recorded.

Operators hand an `OperatorCall` to every `Recorder` that is listening in their context, so that
a profiler sees calls made directly and calls made by a compiled model alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


class BufferUse(NamedTuple):
    """Bytes that one step needs of an on-chip buffer of a core, and the bytes there are."""

    name: str
    need: float
    there: float


class Bandwidth(NamedTuple):
    """Traffic with device memory over a stretch of the modelled time."""

    start_us: float
    end_us: float
    gb_per_s: float
    utilisation: float
    """Share of what the device's memory delivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCounters:
    """One call of an attention operator, counted tile by tile and timed by the device's model.

    A tile is one block of queries by one block of keys, for one KV head of one sequence with all
    query heads that share it. Flops are those of the matrix products, 2 for a multiply-add.
    Bytes are those between device memory and SRAM in the loop order of the operator, with no
    cache in between (``cost.attention_tiles``); ``time_us`` and ``bandwidth`` come from the cost
    model, in which the second-level cache serves repeated reads.
    """

    op: str
    device: str
    dtype: str
    block_q: int
    block_k: int
    flops: int
    flops_skipped: int
    """What the skipped tiles would have cost; with ``flops`` it is the full matrix."""
    reads: tuple[tuple[str, int], ...]
    """Bytes read from device memory, by operand."""
    writes: tuple[tuple[str, int], ...]
    """Bytes written to device memory, by operand."""
    sram: tuple[BufferUse, ...]
    """The most that a step holds in each on-chip buffer, double buffered."""
    tiles: int
    tiles_skipped: int
    tiles_masked: int
    """Of ``tiles``, those in which single keys had to be masked."""
    time_us: float
    """Modelled time of the call alone on the device."""
    cube_utilisation: float
    """Share of the modelled time in which the cube cores are busy, over all of them."""
    vector_utilisation: float
    bandwidth: tuple[Bandwidth, ...]
    """Traffic with device memory over the modelled time, in order, without gaps."""

    @property
    def hbm_read_bytes(self) -> int:
        """Bytes read from device memory."""
        return sum(amount for _, amount in self.reads)

    @property
    def hbm_write_bytes(self) -> int:
        """Bytes written to device memory."""
        return sum(amount for _, amount in self.writes)

    @property
    def hbm_bytes(self) -> int:
        """Bytes read and written."""
        return self.hbm_read_bytes + self.hbm_write_bytes

    @property
    def sram_peak_bytes(self) -> int:
        """The most that a step holds in all on-chip buffers of a core."""
        return int(sum(b.need for b in self.sram))

    @property
    def sram_bytes(self) -> int:
        """What all these buffers hold."""
        return int(sum(b.there for b in self.sram))

    @property
    def overflows(self) -> tuple[str, ...]:
        """The on-chip buffers that the blocks do not fit into."""
        return tuple(b.name for b in self.sram if b.need > b.there)

    @property
    def skipped_fraction(self) -> float:
        """Share of the full matrix's flops that was skipped."""
        everything = self.flops + self.flops_skipped
        return self.flops_skipped / everything if everything else 0.0

    @property
    def intensity(self) -> float:
        """Flops per byte of traffic with device memory."""
        return self.flops / self.hbm_bytes if self.hbm_bytes else 0.0


class OperatorCall(NamedTuple):
    """One call of an operator, as a profiler lists it."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of its array arguments, in the caller's layout."""
    dtypes: tuple[str, ...]
    counters: AttentionCounters
    started_ns: int
    """Host clock (``time.perf_counter_ns``) at the call."""
    host_ns: int
    """How long the host took."""
    memory_bytes: int
    """Device memory that the call's results take."""
    stack: tuple[str, ...] = ()
    """Where it was called from, innermost first, for recorders that ask (``stacks``)."""
    thread: int = 0
    """The host thread that called (``threading.get_ident``)."""


class Recorder:
    """Collects the calls made while it listens (`listening`).

    ``stacks``: with the lines of the caller's code that they come from.
    """

    def __init__(self, device: Device, *, stacks: bool = False) -> None:
        self.device, self.stacks = device, stacks
        self.calls: list[OperatorCall] = []

    @contextmanager
    def listening(self) -> Iterator[Recorder]:
        """Listens to the calls of this context; several recorders may listen at once.

        They may begin and end in any order, and in a thread of another context, where ending
        has no effect on this one.
        """
        _LISTENING.set((*_LISTENING.get(), self))
        try:
            yield self
        finally:
            _LISTENING.set(tuple(r for r in _LISTENING.get() if r is not self))


_LISTENING: ContextVar[tuple[Recorder, ...]] = ContextVar("gecompiler_recorders", default=())


def listeners() -> tuple[Recorder, ...]:
    """The recorders that want to hear of calls made here."""
    return _LISTENING.get()
