"""The Timeline: what happened when, and which resource it used. Times are integer ns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

WaitCause = Literal["stream", "event", "resource", "start"]


@dataclass(frozen=True, slots=True)
class Span:
    """One task's run on its stream. Spans of one stream never overlap."""

    task: int
    name: str
    op_type: str
    rank: int
    stream: int
    start_ns: int
    end_ns: int
    alone_ns: int
    """How long the task takes when nothing runs beside it."""
    wait_ns: int = 0
    """How long the stream stood idle before it, beyond the device's task gap."""
    waited_for: int | None = None
    """The task whose end released it last, None at the start of a stream."""
    wait_cause: WaitCause = "start"
    """Whether that was the task before it on its stream, or an event's producer."""
    bound_by: str = ""
    """The resource that limited it for most of its run: cube, vector, hbm, l2, a link, fixed, or
    ``peers``: the parts of its collective on other ranks, which came later."""
    peer: int | None = None
    """The part of its collective that came last, where this one waited for it."""
    peer_ns: int = 0
    """How long it waited so, within its run."""

    @property
    def duration_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Usage:
    """One resource's use over time: ``fractions[i]`` of capacity from ``times_ns[i]`` on."""

    resource: str
    capacity: float
    unit: str
    times_ns: tuple[int, ...]
    fractions: tuple[float, ...]

    def mean(self, until_ns: int) -> float:
        """The mean fraction from 0 to ``until_ns``; before the first time it is 0."""
        if until_ns <= 0 or not self.times_ns:
            return 0.0
        ends = (*self.times_ns[1:], until_ns)
        area = math.fsum(
            f * max(0, min(e, until_ns) - s)
            for s, e, f in zip(self.times_ns, ends, self.fractions, strict=True)
        )
        return area / until_ns


@dataclass(frozen=True)
class Timeline:
    """The spans of all tasks, by task id, and the use of every resource.

    ``print()`` and ``save()`` are for people (`gecompiler.report` draws them).
    """

    spans: tuple[Span, ...]
    usage: tuple[Usage, ...] = ()
    device: str = ""
    model: str = ""
    events: tuple[tuple[int, int], ...] = field(default=())
    """(producer, consumer) task ids of the waits, for drawing arrows."""

    @cached_property
    def makespan_ns(self) -> int:
        """The end of the last span."""
        return max((s.end_ns for s in self.spans), default=0)

    @cached_property
    def streams(self) -> dict[tuple[int, int], tuple[Span, ...]]:
        """The spans of each (rank, stream), in time."""
        found: dict[tuple[int, int], list[Span]] = {}
        for span in self.spans:
            found.setdefault((span.rank, span.stream), []).append(span)
        return {
            k: tuple(sorted(found[k], key=lambda s: (s.start_ns, s.end_ns))) for k in sorted(found)
        }

    def busy_ns(self, rank: int, stream: int) -> int:
        """The time in which the stream runs a task."""
        return sum(s.duration_ns for s in self.streams.get((rank, stream), ()))

    @cached_property
    def overlap(self) -> float:
        """The share of busy time in which at least two streams of a rank are busy.

        Over the ranks, both times are summed.
        """
        marks: dict[int, list[tuple[int, int]]] = {}
        for span in self.spans:
            if span.end_ns > span.start_ns:
                steps = marks.setdefault(span.rank, [])
                steps += [(span.start_ns, 1), (span.end_ns, -1)]
        busy = both = 0
        for steps in marks.values():
            depth = last = 0
            for time, step in sorted(steps):
                busy += (time - last) if depth >= 1 else 0
                both += (time - last) if depth >= 2 else 0
                depth, last = depth + step, time
        return both / busy if busy else 0.0

    def _repr_html_(self) -> str:
        """What a notebook shows: a lane per stream."""
        from gecompiler.ir.notebook import timeline_html

        return timeline_html(self)

    def verify(self) -> None:
        """Raises ScheduleError when a span ends before it starts, or overlaps on its stream."""
        from gecompiler.ir.errors import ScheduleError

        for (rank, stream), spans in self.streams.items():
            where = f"rank {rank}, stream {stream}"
            end = 0
            for span in spans:
                if span.end_ns < span.start_ns:
                    raise ScheduleError(
                        f"task {span.name!r} starts at {span.start_ns} ns and ends at "
                        f"{span.end_ns} ns",
                        where=where,
                    )
                if span.start_ns < end or span.start_ns < 0:
                    raise ScheduleError(
                        f"task {span.name!r} starts at {span.start_ns} ns, before {end} ns",
                        where=where,
                    )
                end = span.end_ns
