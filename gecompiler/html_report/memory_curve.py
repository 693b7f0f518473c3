"""The memory in use over time: tensors from their writer's start to their last reader's end."""

from __future__ import annotations

from collections import defaultdict

from gecompiler.ir.schedule import Buffer, Schedule
from gecompiler.ir.timeline import Timeline

_RESIDENT = frozenset({"weight", "state", "input"})
"""Kinds that lie in memory before a run and after it."""

Curve = tuple[tuple[int, ...], tuple[int, ...]]
"""Times in ns, and the bytes in use from each on."""


def memory_curves(schedule: Schedule, timeline: Timeline) -> dict[int, Curve]:
    """The curve of each rank. O(tasks + buffers), but for sorting.

    A buffer and those that alias it count once, for as long as any of them is in use; what the
    model gives back stays until the end. What is written is in use from the start of its
    writer; what nobody writes, from the beginning.
    """
    spans = {span.task: span for span in timeline.spans}
    root = _roots(schedule)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for task in schedule.tasks:
        span = spans.get(task.id)
        if span is None:
            continue
        for tensor in task.writes:
            key = root.get(tensor, tensor)
            first[key] = min(first.get(key, span.start_ns), span.start_ns)
        for tensor in (*task.reads, *task.writes):
            key = root.get(tensor, tensor)
            last[key] = max(last.get(key, 0), span.end_ns)
    outputs = {root.get(b.tensor, b.tensor) for b in schedule.buffers if b.kind == "output"}
    steps: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for buffer in schedule.buffers:
        if root.get(buffer.tensor) != buffer.tensor or not buffer.bytes:
            continue
        start, end = _life(buffer, first, last, outputs, timeline.makespan_ns)
        steps[buffer.rank][start] += buffer.bytes
        steps[buffer.rank][end] -= buffer.bytes
    return {rank: _summed(steps[rank]) for rank in sorted(steps)}


def _roots(schedule: Schedule) -> dict[str, str]:
    """The buffer that each tensor's memory belongs to; hand-edited circles end where they close."""
    parent = {b.tensor: b.alias_of for b in schedule.buffers}
    found: dict[str, str] = {}
    for tensor in parent:
        chain: dict[str, None] = {}
        at = tensor
        while at not in found and at not in chain:
            chain[at] = None
            above = parent.get(at)
            if above is None or above not in parent:
                break
            at = above
        end = found.get(at, at)
        for name in chain:
            found[name] = end
    return found


def _life(
    buffer: Buffer, first: dict[str, int], last: dict[str, int], outputs: set[str], end: int
) -> tuple[int, int]:
    name = buffer.tensor
    if buffer.kind in _RESIDENT:
        return 0, end + 1
    return first.get(name, 0), end + 1 if name in outputs else last.get(name, 0)


def _summed(steps: dict[int, int]) -> Curve:
    times: list[int] = []
    used: list[int] = []
    total = 0
    for time in sorted(steps):
        total += steps[time]
        if not used or used[-1] != total:
            times.append(time)
            used.append(total)
    return tuple(times), tuple(used)
