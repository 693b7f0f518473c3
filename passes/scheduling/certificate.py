"""What a schedule's certificate says beyond its bounds: the gap, and what more streams bring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gecompiler.passes.scheduling.schedule_records import CandidateRow, ScheduleResult


@dataclass(frozen=True, slots=True)
class OnStreams:
    """The shortest time found on at most so many streams."""

    streams: int
    makespan_us: float


@dataclass(frozen=True)
class Certificate:
    """How far the best found may be from the optimum, and the best by number of streams."""

    gap: float
    """The best found over the lower bound, less 1; no schedule is shorter by more."""
    by_streams: tuple[OnStreams, ...]
    """Rising numbers of streams, each with a shorter time than the one before."""
    next: OnStreams | None
    """The fewest streams above those used on which a shorter time was found."""
    next_gain: float
    """How much faster that is than the schedule, as a share of its own time; 0 without one."""


def certificate(result: ScheduleResult) -> Certificate:
    """The certificate of a schedule, from all candidates that were simulated."""
    bound = result.lower_bound_us
    rows = _frontier(result.candidates, result.single_stream_us)
    more = next(
        (r for r in rows if r.streams > result.used and r.makespan_us < result.makespan_us), None
    )
    gain = result.makespan_us / more.makespan_us - 1 if more is not None else 0.0
    return Certificate(result.best_found_us / bound - 1 if bound else 0.0, rows, more, gain)


def _frontier(candidates: Iterable[CandidateRow], single_us: float) -> tuple[OnStreams, ...]:
    best: dict[int, float] = {1: single_us}
    for row in candidates:
        if row.makespan_us is not None:
            best[row.streams] = min(row.makespan_us, best.get(row.streams, row.makespan_us))
    found: list[OnStreams] = []
    for streams, us in sorted(best.items()):
        if not found or us < found[-1].makespan_us:
            found.append(OnStreams(streams, us))
    return tuple(found)
