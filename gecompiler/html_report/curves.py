"""The use of every resource over time, and the memory in use, as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gecompiler.html_report.compact import deltas
from gecompiler.html_report.memory_curve import memory_curves
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Timeline, Usage

MAX_POINTS = 50_000
"""Points of one curve; a longer one is thinned to its means over equal times."""

PER_MILLE = 1000


def curve_part(timeline: Timeline, schedule: Schedule | None) -> dict[str, Any]:
    """``times`` that several curves share, and the curves, which name theirs by number."""
    times: dict[tuple[int, ...], int] = {}
    rows = [_usage(usage, timeline.makespan_ns, times) for usage in timeline.usage]
    memory = []
    if schedule is not None:
        for rank, (at, used) in memory_curves(schedule, timeline).items():
            number = times.setdefault(at, len(times))
            memory.append({"rank": rank, "times": number, "bytes": deltas(used)})
    return {
        "times": [deltas(found) for found in times],
        "usage": rows,
        "memory": memory,
        "memory_limit": 0 if schedule is None else schedule.limits.memory_bytes,
    }


def _usage(usage: Usage, until_ns: int, times: dict[tuple[int, ...], int]) -> dict[str, Any]:
    at, parts = thinned(usage.times_ns, usage.fractions, until_ns)
    rank, colon, name = usage.resource.partition(":")
    own = bool(colon) and rank.isdigit()
    return {
        "resource": name if own else usage.resource,
        "rank": int(rank) if own else -1,
        "capacity": usage.capacity,
        "unit": usage.unit,
        "mean": round(usage.mean(until_ns), 4),
        "times": times.setdefault(at, len(times)),
        "parts": [round(PER_MILLE * part) for part in parts],
    }


def thinned(
    times: tuple[int, ...], parts: Sequence[float], until_ns: int, most: int = MAX_POINTS
) -> tuple[tuple[int, ...], Sequence[float]]:
    """The curve, or its means over ``most`` equal times where it has more points. O(points)."""
    if len(times) <= most or until_ns <= most:
        return times, parts
    width = -(-until_ns // most)
    area = [0.0] * (until_ns // width + 1)
    for i, part in enumerate(parts):
        start = times[i]
        end = min(times[i + 1] if i + 1 < len(times) else until_ns, until_ns)
        while start < end:
            stop = min(end, (start // width + 1) * width)
            area[start // width] += part * (stop - start)
            start = stop
    return tuple(i * width for i in range(len(area))), [a / width for a in area]
