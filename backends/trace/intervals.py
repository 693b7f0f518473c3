"""Computing, communicating, both, neither: a card's time divided as profilers divide it.

All times are integer nanoseconds, so that the identities hold exactly: communication is what
computing hides of it plus what it does not, and a stage is computing, communication that is
not hidden, and free time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals that cover the same, ascending; touching ones are joined. O(n log n)."""
    found: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def minus(whole: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """What of disjoint ascending intervals no interval of another such list covers. O(n)."""
    found: list[Interval] = []
    at = 0
    for begin, end in whole:
        start = begin
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        i = at
        while i < len(taken) and taken[i][0] < end:
            if taken[i][0] > start:
                found.append((start, taken[i][0]))
            start = max(start, taken[i][1])
            i += 1
        if start < end:
            found.append((start, end))
        at = max(at, i - 1)
    return found


def total(intervals: Iterable[Interval]) -> int:
    """The sum of the lengths."""
    return sum(end - start for start, end in intervals)


@dataclass(frozen=True)
class Lanes:
    """The four lanes of ``Overlap Analysis``, each disjoint and ascending."""

    computing: tuple[Interval, ...]
    communication: tuple[Interval, ...]
    not_overlapped: tuple[Interval, ...]
    free: tuple[Interval, ...]

    def named(self) -> tuple[tuple[str, tuple[Interval, ...]], ...]:
        """Name and intervals, in the order of their threads."""
        return (
            ("Computing", self.computing),
            ("Communication", self.communication),
            ("Communication(Not Overlapped)", self.not_overlapped),
            ("Free", self.free),
        )


def lanes(computing: Iterable[Interval], communication: Iterable[Interval]) -> Lanes:
    """The lanes of one card. Free is what lies between the first start and the last end."""
    compute, talk = union(computing), union(communication)
    busy = union([*compute, *talk])
    span = [(busy[0][0], busy[-1][1])] if busy else []
    return Lanes(tuple(compute), tuple(talk), tuple(minus(talk, compute)), tuple(minus(span, busy)))


@dataclass(frozen=True, slots=True)
class StepTime:
    """One row of ``step_trace_time.csv``, in nanoseconds."""

    device: int
    step: str
    computing: int
    not_overlapped: int
    communication: int
    free: int
    stage: int
    bubble: int = 0
    preparing: int | None = None

    @property
    def overlapped(self) -> int:
        """Communication that computing hides."""
        return self.communication - self.not_overlapped

    @property
    def not_overlapped_without_receive(self) -> int:
        """Communication that nothing hides, but for waiting for a pipeline's stage before."""
        return self.not_overlapped - self.bubble


def step_time(found: Lanes, device: int, step: str, bubble: int = 0) -> StepTime:
    """The sums of the lanes; ``bubble`` (time in receives) is no part of the stage."""
    busy = [*found.computing, *found.communication]
    ends = (min(a for a, _ in busy), max(b for _, b in busy)) if busy else (0, 0)
    return StepTime(
        device=device,
        step=step,
        computing=total(found.computing),
        not_overlapped=total(found.not_overlapped),
        communication=total(found.communication),
        free=total(found.free),
        stage=ends[1] - ends[0] - bubble,
        bubble=bubble,
    )
