"""Why a task is where it is, why it starts when it does, and what would make it start earlier.

`explain` answers for the task of one op, `matches` finds the tasks that a name stands for.
All times are ns from the start of the simulated run; gains hold while the rest stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from gecompiler.backends.device import Device
from gecompiler.explain_records import Explanation, Lever, Meeting, Way
from gecompiler.explain_times import Release, RunTimes
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Span, Timeline

__all__ = ["Explainer", "Explanation", "Lever", "Meeting", "Way", "like_elsewhere", "matches"]

if TYPE_CHECKING:
    from gecompiler.backends.collectives import Cost
    from gecompiler.driver import Compilation


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
        cost_of: Callable[[int], Cost] | None = None,
    ) -> None:
        self.schedule = schedule
        self.timeline = timeline
        self.device = device
        self.preds = preds
        self.reasons = reasons
        self.cost_of = cost_of
        """What a collective costs, by task, where it is known how it is carried out."""
        self.times = RunTimes(schedule, timeline, device)

    @staticmethod
    def of(compilation: Compilation) -> Explainer:
        """For a compiled model."""
        if compilation.cards is not None:
            from gecompiler.cards.explain import cards_explainer

            return cards_explainer(compilation.cards, compilation.device)
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
            meeting=self.meeting(task),
        )

    def meeting(self, task: int) -> Meeting | None:
        """How a collective's parts came together; None for what is none."""
        members, spans = self.times.party(task), self.times.spans
        if not members and self.schedule.tasks[task].kind != "collective":
            return None
        members = members or (task,)  # the others are not simulated
        ready = [(t, spans[t].start_ns + self.times.fixed_ns(t)) for t in members]
        arrivals = tuple(sorted(ready, key=lambda row: (row[1], row[0])))
        last = spans[arrivals[-1][0]]
        begun = arrivals[-1][1]
        found = Meeting(
            arrivals,
            last.end_ns - begun,
            round(self.times.alone_ns(last.task)) - self.times.fixed_ns(last.task),
            last.bound_by,
        )
        if self.cost_of is None:
            return found
        cost = self.cost_of(task)
        return replace(
            found,
            how=(cost.algorithm, cost.protocol.name),
            steps=cost.steps,
            message_bytes=cost.message_bytes,
            link=cost.busiest_link,
        )

    @cached_property
    def earliest_ns(self) -> tuple[int, ...]:
        """How early each task could start at most: its dependencies alone, on any streams."""
        times, spans = self.times, self.times.spans
        step = min(times.gap, times.record + times.wait)
        found = [0.0] * len(self.preds)

        def over(task: int) -> float:
            """When a task could be over: a collective not before all of its parts could come."""
            start = max((found[t] for t in times.party(task)), default=found[task])
            return start + times.alone_ns(task)

        for task, preds in sorted(
            enumerate(self.preds), key=lambda r: (spans[r[0]].start_ns, r[0])
        ):
            found[task] = max((over(p) + step for p in preds), default=0.0)
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
        span = self.times.spans[task]
        if span.peer is not None:
            found.append(Lever("peer", span.peer_ns, span.peer))
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

    @cached_property
    def several_cards(self) -> bool:
        """Whether there is more than one."""
        return len({rank for rank, _ in self.timeline.streams}) > 1


def matches(compilation: Compilation, name: str, rank: int | None = None) -> list[int]:
    """The ids of the tasks that a name stands for, in the order in which they start.

    Of several cards those of one ``rank``, by default of that on which they end last.

    The name is a task's, with or without the number of its micro-batch, or as in stream
    assignments: an op's (also of one that was fused), a type, a group, or a glob. UsageError
    with the nearest names when it stands for none.
    """
    from gecompiler.passes.streams.naming import NameTable

    if compilation.cards is not None:
        from gecompiler.cards.explain import cards_matches

        return cards_matches(compilation.cards, name, rank)
    if rank not in (None, 0):
        raise UsageError(
            f"there is no rank {rank}: the model is compiled for one card",
            where="--rank",
            hint="give the cards as well (--tp, --sp, --dp, --pp, --ep)",
        )
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


def like_elsewhere(compilation: Compilation, task: int) -> list[int]:
    """The tasks of the same op on the other cards that were simulated, by rank."""
    if compilation.cards is None:
        return []
    from gecompiler.cards.explain import like_tasks

    return [other for other in like_tasks(compilation.cards, task) if other != task]
