"""What to say when a plan does not fit the device's memory."""

from __future__ import annotations

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Buffer
from gecompiler.ir.target import Target
from gecompiler.passes.memory.plan import MemoryPlan


def report_memory(
    plan: MemoryPlan,
    target: Target,
    model: str,
    diagnostics: Diagnostics,
    *,
    strict: bool,
    rank: str = "",
) -> None:
    """Warns when the plan needs more than the device has; with ``strict`` a ScheduleError.

    ``rank`` says whose plan it is, where there are several cards.
    """
    available = target.limits.memory_bytes
    if plan.arena_bytes <= available:
        return
    message = (
        f"{gib(plan.arena_bytes)} of memory are needed, {target.name} has {gib(available)}: "
        f"{_by_kind(plan)}; largest at the peak: {_largest(plan)}"
    )
    if rank:
        message = f"{rank}: {message}"
    hint = (
        "compile for a device with more memory (--device), a smaller batch or sequence, or "
        f"narrower weights; {-(-plan.arena_bytes // available)} such cards would hold it"
    )
    if rank:
        hint = (
            "share it among more cards (--tp, --pp; 'gec plan' searches), or compile for a device "
            "with more memory (--device), a smaller batch or sequence, or narrower weights"
        )
    if strict:
        raise ScheduleError(message, where=model, hint=hint)
    diagnostics.warn("out-of-memory", message, hint)


def gib(size: int) -> str:
    """A size in GiB, or MiB where that reads better."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"


def _own(plan: MemoryPlan) -> list[Buffer]:
    return [b for b in plan.buffers if b.alias_of is None]


def _by_kind(plan: MemoryPlan) -> str:
    total: dict[str, int] = {}
    for buffer in _own(plan):
        if buffer.kind in ("weight", "state", "input"):
            total[buffer.kind] = total.get(buffer.kind, 0) + buffer.bytes
    named = {"weight": "weights", "state": "state (KV cache)", "input": "inputs"}
    parts = [f"{named[kind]} {gib(size)}" for kind, size in total.items() if size]
    rest = plan.arena_bytes - sum(total.values())
    return ", ".join([*parts, f"activations {gib(rest)}"])


def _largest(plan: MemoryPlan) -> str:
    return ", ".join(f"{tensor!r} {gib(size)}" for tensor, size in plan.peak)
