"""Why a task is where it is, why it starts when it does, and what would make it start earlier.

`explain` answers for the task of one op, `matches` finds the tasks that a name stands for.
All times are ns from the start of the simulated run; gains hold while the rest stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gecompiler.backends.device import Device
from gecompiler.explain_times import Release, RunTimes
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.timeline import Span, Timeline

if TYPE_CHECKING:
    from gecompiler.driver import Compilation


@dataclass(frozen=True, slots=True)
class Lever:
    """One change, and how much earlier the task could start by it at most."""

    kind: str
    """``move`` to an idle stream; ``join`` the stream of a task it depends on; ``shorten`` the
    task it started upon, or ``shorten_back`` one further back; run what came before without
    ``contention``; ``launch`` from the device in the place of the host."""
    gain_ns: int
    task: int | None = None
    """The task to change, where it is another one."""
    stream: int | None = None
    """The stream to go to, where there is one."""


@dataclass(frozen=True, slots=True)
class Way:
    """The tasks that held up each other before the start, and what that time was."""

    tasks: tuple[int, ...]
    """The first first, without the task itself."""
    alone_ns: int
    """What they take with nothing beside them."""
    slowed_ns: int
    """What they took more, having shared resources."""
    between_ns: int
    """Launches, syncs and, where the host issues tasks, waiting for it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known of one task's place in the schedule."""

    task: Task
    span: Span
    why_here: str
    data_ready_ns: int
    """When the last of the tasks that it depends on had ended."""
    data_from: int | None
    releases: tuple[Release, ...]
    """The conditions of its start, the decisive one first."""
    beside: tuple[tuple[int, int], ...]
    """(task, ns) of the tasks it ran beside, the longest first."""
    way: Way
    levers: tuple[Lever, ...]
    """What would make it start earlier, the most first."""
    earliest_ns: int
    """No schedule starts it before: what it depends on takes so long, alone."""
    slack_ns: int

    @property
    def critical(self) -> bool:
        """Whether the run gets longer by each ns that the task is later."""
        return self.slack_ns == 0


class Explainer:
    """Answers for the tasks of one simulated schedule.

    ``preds`` are the tasks that each task depends on by data or control, by id, and ``reasons``
    why each is on its stream.
    """

    def __init__(
        self,
        schedule: Schedule,
        timeline: Timeline,
        device: Device,
        preds: Sequence[Sequence[int]],
        reasons: Sequence[str] = (),
    ) -> None:
        self.schedule = schedule
        self.timeline = timeline
        self.device = device
        self.preds = preds
        self.reasons = reasons
        self.times = RunTimes(schedule, timeline, device)

    @staticmethod
    def of(compilation: Compilation) -> Explainer:
        """For a compiled model."""
        from gecompiler.passes.scheduling.placement_log import reasons

        result = compilation.result
        assert result.decided is not None
        graph = result.decided.synced.placement.graph
        return Explainer(
            result.schedule,
            result.timeline,
            compilation.device,
            graph.preds,
            reasons(result.decided),
        )

    def explain(self, task: int) -> Explanation:
        """What is known of the task with that id."""
        span, spans = self.times.spans[task], self.times.spans
        last = max(self.preds[task], key=lambda p: (spans[p].end_ns, -p), default=None)
        way = self._way(task)
        return Explanation(
            task=self.schedule.tasks[task],
            span=span,
            why_here=self.reasons[task] if self.reasons else "",
            data_ready_ns=0 if last is None else spans[last].end_ns,
            data_from=last,
            releases=tuple(self.times.releases(task)),
            beside=self._beside(span),
            way=way,
            levers=self._levers(task, way),
            earliest_ns=self.earliest_ns[task],
            slack_ns=self.times.slack_ns[task],
        )

    @cached_property
    def earliest_ns(self) -> tuple[int, ...]:
        """How early each task could start at most: its dependencies alone, on any streams."""
        times, spans = self.times, self.times.spans
        step = min(times.gap, times.record + times.wait)
        found = [0.0] * len(self.preds)
        for task, preds in sorted(
            enumerate(self.preds), key=lambda r: (spans[r[0]].start_ns, r[0])
        ):
            found[task] = max((found[p] + times.alone_ns(p) + step for p in preds), default=0.0)
        return tuple(int(ns) for ns in found)

    def _beside(self, span: Span) -> tuple[tuple[int, int], ...]:
        lane = (span.rank, span.stream)
        shared = [
            (s.task, min(s.end_ns, span.end_ns) - max(s.start_ns, span.start_ns))
            for s in self.timeline.spans
            if (s.rank, s.stream) != lane and s.rank == span.rank
        ]
        found = [(task, ns) for task, ns in shared if ns > 0]
        return tuple(sorted(found, key=lambda row: (-row[1], row[0])))

    def _way(self, task: int) -> Way:
        spans = self.times.spans
        before = [spans[t] for t in self.times.way(task)[:-1]]
        ran = sum(s.duration_ns for s in before)
        slowed = sum(max(0, s.duration_ns - s.alone_ns) for s in before)
        start = spans[task].start_ns
        return Way(tuple(s.task for s in before), ran - slowed, slowed, start - ran)

    # ------------------------------------------------------------- what would help

    def _levers(self, task: int, way: Way) -> tuple[Lever, ...]:
        start = self.times.spans[task].start_ns
        first, *others = self.times.releases(task)
        room = start - max((r.at_ns for r in others), default=0)
        found = [*self._places(task), *self._shorter(first, room, way)]
        if way.slowed_ns:
            most = start - self.earliest_ns[task]
            found.append(Lever("contention", min(way.slowed_ns, most)))
        # whatever ends earlier, the host issues the task no earlier
        until_issued = start - self.times.issued_ns(task)
        found = [replace(row, gain_ns=min(row.gain_ns, until_issued)) for row in found]
        if first.kind == "host":
            found.append(Lever("launch", room))
        useful = [lever for lever in found if lever.gain_ns > 0]
        return tuple(sorted(useful, key=lambda lever: (-lever.gain_ns, lever.kind)))

    def _shorter(self, first: Release, room: int, way: Way) -> list[Lever]:
        """The task it started upon, until the next condition holds it; the longest on the way."""
        if first.by is None:
            return []
        spans = self.times.spans
        found = [Lever("shorten", min(room, spans[first.by].duration_ns), first.by)]
        longest = max(way.tasks, key=lambda t: (spans[t].duration_ns, -t))
        if longest != first.by:
            found.append(Lever("shorten_back", spans[longest].duration_ns, longest))
        return found

    def _places(self, task: int) -> list[Lever]:
        """Another stream: that of a task it depends on, or one with nothing it needs."""
        times, span = self.times, self.times.spans[task]
        homes = dict.fromkeys(
            times.spans[p].stream for p in self.preds[task] if times.spans[p].rank == span.rank
        )
        found = []
        for stream in (*homes, None):
            at = self._ready_on(task, stream)
            gain = span.start_ns - at
            if stream != span.stream and gain > 0:
                if stream is not None:
                    found.append(Lever("join", gain, self._last_on(task, stream), stream))
                elif (idle := self._idle(span, at, homes)) is not None:
                    found.append(Lever("move", gain, stream=idle))
        return sorted(found, key=lambda lever: -lever.gain_ns)[:1]

    def _last_on(self, task: int, stream: int) -> int:
        """Of the tasks it depends on, the one on that stream that ended last."""
        spans = self.times.spans
        here = [p for p in self.preds[task] if spans[p].stream == stream]
        return max(here, key=lambda p: (spans[p].end_ns, -p))

    def _ready_on(self, task: int, stream: int | None) -> int:
        """When what the task depends on has reached that stream."""
        times, rank = self.times, self.times.spans[task].rank
        ready = 0.0
        for pred in self.preds[task]:
            other = times.spans[pred]
            here = (other.rank, other.stream) == (rank, stream)
            step = times.gap if here else times.record + times.wait
            ready = max(ready, other.end_ns + step)
        return round(ready)

    def _idle(self, span: Span, at: int, but: Collection[int]) -> int | None:
        """Another stream on which nothing runs from then on for as long as the task takes."""
        until = at + span.alone_ns
        for stream in range(self.device.limits.max_streams):
            if stream == span.stream or stream in but:
                continue
            row = self.timeline.streams.get((span.rank, stream), ())
            if not any(s.start_ns < until and at < s.end_ns for s in row):
                return stream
        return None

    # ------------------------------------------------------------- names

    def name(self, task: int) -> str:
        """The task's name."""
        return self.schedule.tasks[task].name


def matches(compilation: Compilation, name: str) -> list[int]:
    """The ids of the tasks that a name stands for, in the order in which they start.

    The name is a task's, with or without the number of its micro-batch, or as in stream
    assignments: an op's (also of one that was fused), a type, a group, or a glob. UsageError
    with the nearest names when it stands for none.
    """
    from gecompiler.passes.streams.naming import NameTable

    schedule, timeline = compilation.result.schedule, compilation.result.timeline
    parts = re.compile(re.escape(name) + r"(#mb\d+)?")
    exact = [task.id for task in schedule.tasks if parts.fullmatch(task.name)]
    if exact:
        return sorted(exact, key=lambda t: (timeline.spans[t].start_ns, t))
    try:
        ops = {op.name for op in NameTable(compilation.graph).find(name)[1]}
    except UsageError as error:
        names = [task.name for task in schedule.tasks]
        hint = error.hint or nearest(name, names)
        raise UsageError(error.message, where=f"explain {name!r}", hint=hint) from None
    decided = compilation.result.decided
    riders = {} if decided is None else decided.synced.placement.graph.riders
    found = {t.id for t in schedule.tasks if ops & {t.name, *t.ops}}
    found |= {riders[op] for op in ops if op in riders}
    if not found:
        raise UsageError(
            f"{name!r} needs no task: its value is known before the run",
            where=f"explain {name!r}",
            hint="name an op that computes something",
        )
    spans = timeline.spans
    return sorted(found, key=lambda t: (spans[t].start_ns, t))
