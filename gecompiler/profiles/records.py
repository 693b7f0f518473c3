"""What a profile holds, card by card, before it is laid out as a timeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from gecompiler.backends.trace.intervals import StepTime


class Kernel(NamedTuple):
    """One task that a device ran. Times in ns since whatever the profiler counts from."""

    name: str
    op_type: str
    core: str
    """``AI_CORE``, ``AI_VECTOR_CORE``, ``COMMUNICATION``, ``SDMA_SQE``, ... '' where not said."""
    device: int
    stream: str
    """As written; '' where it is N/A, as of collectives."""
    task: str
    step: str
    start_ns: int
    duration_ns: int
    blocks: int = 0
    texts: tuple[str, str, str, str, str, str] = ("", "", "", "", "", "")
    """Shapes, types and formats of the inputs, then of the outputs, as written."""

    @property
    def end_ns(self) -> int:
        """Start plus duration."""
        return self.start_ns + self.duration_ns


class Wait(NamedTuple):
    """A stream that stood at an event: ``EVENT_WAIT``, ``Notify_Wait``; or that recorded one."""

    name: str
    device: int
    stream: str
    start_ns: int
    end_ns: int


class HostStep(NamedTuple):
    """``ProfilerStep#7`` on the host."""

    step: str
    start_ns: int
    end_ns: int


@dataclass
class Card:
    """What one folder (one process, mostly one card) recorded."""

    folder: str
    rank: int | None = None
    """From the files that name it."""
    kernels: list[Kernel] = field(default_factory=list)
    copies: list[Kernel] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    records: list[Wait] = field(default_factory=list)
    launches: dict[int, int] = field(default_factory=dict)
    """When the host issued what begins at a device time."""
    host_steps: list[HostStep] = field(default_factory=list)
    vendor_steps: list[StepTime] = field(default_factory=list)
    """The profiler's own sums; device -1 where the file does not name one."""
    collectives: dict[str, dict[str, float]] = field(default_factory=dict)
    """Elapse, transit, wait and idle ms of each collective, by name."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows and events that cannot be used, by reason."""
    sources: list[str] = field(default_factory=list)
    """The files that were read, relative to what was opened."""
    set_aside: list[str] = field(default_factory=list)
    """Files that say the same as others that were read."""
    dialect: str = ""


def is_communication(core: str, op_type: str = "") -> bool:
    """Whether a task type is that of collectives."""
    return core in ("COMMUNICATION", "HCCL") or (not core and op_type.lower().startswith("hcom_"))


_COMPUTES = ("AI_", "AIC", "AIV", "MIX_", "DSA", "KERNEL_", "FFTS", "HOST_AI")


def is_computing(core: str) -> bool:
    """Whether a task type of a trace is that of an operator."""
    return core.startswith(_COMPUTES)
