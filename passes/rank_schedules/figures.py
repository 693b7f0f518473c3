"""What a rank's time went into: computing, communication that shows, and nothing.

A collective counts from when the last of its ranks has come: what the others wait until then is
idle. Communication is exposed while the rank computes nothing. Gaps as short as the device needs
between two tasks count as what they follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gecompiler.ir.schedule import Schedule
from gecompiler.ir.schedule_verify.parts import Key, keys
from gecompiler.ir.timeline import Timeline

Interval = tuple[int, int]


@dataclass(frozen=True)
class RankFigures:
    """One rank's times in us; ``compute + exposed + idle`` is the makespan of all ranks."""

    rank: int
    compute_us: float
    communication_us: float
    """While a collective of it goes on, hidden or not."""
    exposed_us: float
    """Of that, while the rank computes nothing."""
    idle_us: float
    """Neither: the bubble of a pipeline, waiting for other ranks."""
    exposed_by: dict[str, float] = field(default_factory=dict)
    """``exposed_us`` by the axes along which the rank talks; what overlaps counts for each."""


def rank_figures(
    schedule: Schedule, timeline: Timeline, gap_us: float = 0.0
) -> tuple[RankFigures, ...]:
    """The figures of every rank, in order. ``gap_us``: what lies between two tasks at least."""
    begins = _meetings(schedule, timeline)
    computing: dict[int, list[Interval]] = {}
    talking: dict[int, dict[str, list[Interval]]] = {}
    for span in timeline.spans:
        task = schedule.tasks[span.task]
        computing.setdefault(span.rank, [])
        if task.kind == "collective":
            axes = task.communicator.partition(":")[0]
            talk = talking.setdefault(span.rank, {}).setdefault(axes, [])
            talk.append((begins[span.task], span.end_ns))
        elif span.end_ns > span.start_ns:
            computing[span.rank].append((span.start_ns, span.end_ns))
    makespan = timeline.makespan_ns
    return tuple(
        _figures(rank, computing[rank], talking.get(rank, {}), makespan, round(gap_us * 1000))
        for rank in sorted(computing)
    )


def _figures(
    rank: int,
    computing: list[Interval],
    talking: dict[str, list[Interval]],
    makespan: int,
    gap: int,
) -> RankFigures:
    compute = union(computing, gap)
    talk = union(i for intervals in talking.values() for i in intervals)
    exposed = length(union([*compute, *talk])) - length(compute)
    by_axes = {
        axes: (length(union([*compute, *intervals])) - length(compute)) / 1000
        for axes, intervals in sorted(talking.items())
    }
    idle = makespan - length(compute) - exposed
    return RankFigures(
        rank, length(compute) / 1000, length(talk) / 1000, exposed / 1000, idle / 1000, by_axes
    )


def _meetings(schedule: Schedule, timeline: Timeline) -> dict[int, int]:
    """When each part of a collective has all its partners."""
    meetings: dict[tuple[str, Key], int] = {}
    parts = keys(schedule)
    places: dict[int, tuple[str, Key]] = {}
    for span in timeline.spans:
        task = schedule.tasks[span.task]
        if task.kind == "collective":
            place = places[span.task] = task.communicator, parts[span.task]
            meetings[place] = max(meetings.get(place, 0), span.start_ns)
    return {task: meetings[place] for task, place in places.items()}


def union(intervals: Iterable[Interval], gap: int = 0) -> list[Interval]:
    """The intervals joined where they touch, or lie at most ``gap`` apart."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    """The sum of lengths of intervals that do not overlap."""
    return sum(end - start for start, end in intervals)
