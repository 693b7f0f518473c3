"""What lets each task of a simulated run start, and how late it may be.

The rules are the simulator's: a task starts when its stream is free (the end of the task before
it, the task gap, a record where that one signals, its own waits), when the events that it waits
for have arrived, and when the host has issued it. Times are ns from the start of the run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from gecompiler.backends.device import Device
from gecompiler.backends.simulator import kept_link_rate
from gecompiler.backends.simulator.plan import NS, Plan, make_plan
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Span, Timeline

ReleaseKind = Literal["start", "stream", "event", "host"]


@dataclass(frozen=True, slots=True)
class Release:
    """One of the conditions of a task's start: from ``at_ns`` on it holds."""

    kind: ReleaseKind
    at_ns: int
    by: int | None = None
    """The task before it on its stream, or the event's producer."""


class RunTimes:
    """The conditions and the slack of every task of one run."""

    def __init__(self, schedule: Schedule, timeline: Timeline, device: Device) -> None:
        self.spans: dict[int, Span] = {span.task: span for span in timeline.spans}
        self.makespan_ns = timeline.makespan_ns
        self.gap, self.record, self.wait = (
            us * NS for us in (device.task_gap_us, device.event_record_us, device.event_wait_us)
        )
        host, rate = device.launch_mode == "host", kept_link_rate(schedule, device)
        self._plan: Plan = make_plan(schedule, device, host=host, link_rate=rate)
        self._before = {b: a for q in self._plan.queues for a, b in pairwise(q)}
        self._producers: dict[int, list[int]] = defaultdict(list)
        for producer, consumers in self._plan.consumers.items():
            for consumer in consumers:
                self._producers[consumer].append(producer)

    def releases(self, task: int) -> list[Release]:
        """The conditions of the task's start, the last one to hold first.

        Among equals the one that the simulator names comes first.
        """
        before = self._before.get(task)
        found = [
            Release("start" if before is None else "stream", self._stream_ns(task), before),
            *(Release("event", self._event_ns(p), p) for p in self._producers.get(task, ())),
        ]
        if self._plan.issued:
            found.append(Release("host", self.issued_ns(task)))
        named = self.decisive(task)
        return sorted(found, key=lambda r: ((r.kind, r.by) != named, -r.at_ns, r.kind, r.by or 0))

    def decisive(self, task: int) -> tuple[ReleaseKind, int | None]:
        """What the simulator says the task started upon, and whose end that was."""
        span = self.spans[task]
        if span.wait_cause == "resource":
            return "host", None
        return span.wait_cause, span.waited_for

    def waits(self, task: int) -> int:
        """How many waits for events the task's stream takes before it."""
        return self._plan.waits[task]

    def alone_ns(self, task: int) -> float:
        """How long the task takes with nothing beside it, not rounded."""
        return self._plan.work[task].alone_ns

    def fixed_ns(self, task: int) -> int:
        """The task's start-up, during which a collective needs no other card."""
        return round(self._plan.work[task].fixed_ns)

    def issued_ns(self, task: int) -> int:
        """When the host has issued the task, 0 where it lies on the device."""
        return round(self._plan.issued[task]) if self._plan.issued else 0

    def _stream_ns(self, task: int) -> int:
        before, waits = self._before.get(task), self._plan.waits[task] * self.wait
        if before is None:
            return round(waits)
        record = self.record if before in self._plan.consumers else 0.0
        return round(self.spans[before].end_ns + self.gap + record + waits)

    def _event_ns(self, producer: int) -> int:
        return round(self.spans[producer].end_ns + self.record + self.wait)

    def party(self, task: int) -> tuple[int, ...]:
        """The parts of the task's collective on all cards, itself among them; empty for none."""
        number = self._plan.party_of.get(task)
        return () if number is None else self._plan.parties[number]

    def way(self, task: int) -> list[int]:
        """The tasks that held up each other, the first first, up to the task itself.

        Each one but the first started upon the end of the one before it. Of a collective that
        waited for another card the part there that came last stands for it.
        """
        found: dict[int, None] = {}
        at: int | None = task
        while at is not None and at not in found:
            last = self.spans[at].peer
            if last is not None and at != task:
                at = last
                if at in found:
                    break
            found[at] = None
            at = self.decisive(at)[1]
        return list(reversed(found))

    # ------------------------------------------------------------- slack

    @cached_property
    def slack_ns(self) -> dict[int, int]:
        """How much later each task could start without the run taking longer.

        All durations, and which tasks share resources, stay as they were. The parts of one
        collective go on together, so that the first of them to come has the others' delay too.
        """
        plan = self._plan
        nodes: dict[int, tuple[int, ...]] = {t: (t,) for t in self.spans if t not in plan.party_of}
        nodes |= {members[0]: members for members in plan.parties}
        node_of = {t: node for node, members in nodes.items() for t in members}
        follow = {t: self._followers(t) for t in self.spans}
        open_ = {n: sum(len(follow[t]) for t in members) for n, members in nodes.items()}
        leading: dict[int, list[int]] = defaultdict(list)
        for task, rows in follow.items():
            for after, _ in rows:
                leading[node_of[after]].append(node_of[task])
        slack: dict[int, int] = {}
        ready = [node for node, count in open_.items() if not count]
        while ready:
            node = ready.pop()
            self._settle(nodes[node], follow, slack)
            for before in leading[node]:
                open_[before] -= 1
                if not open_[before]:
                    ready.append(before)
        return slack

    def _settle(
        self,
        members: tuple[int, ...],
        follow: dict[int, list[tuple[int, int]]],
        slack: dict[int, int],
    ) -> None:
        spans, work = self.spans, self._plan.work
        late = min(
            min((room + slack[after] for after, room in follow[t]), default=self.makespan_ns)
            for t in members
        )
        late = min(late, *(self.makespan_ns - spans[t].end_ns for t in members))
        arrived = {t: spans[t].start_ns + work[t].fixed_ns for t in members}
        gone = max(arrived.values())
        slack |= {t: round(late + gone - arrived[t]) for t in members}

    def _followers(self, task: int) -> list[tuple[int, int]]:
        """The tasks that may start upon the task's end, and how long it was over by then."""
        found = []
        for after in self._after.get(task, ()):
            start = self.spans[after].start_ns
            for kind, at in (("stream", self._stream_ns(after)), ("event", self._event_ns(task))):
                if kind == "stream" and self._before.get(after) != task:
                    continue
                if kind == "event" and task not in self._producers.get(after, ()):
                    continue
                held = self.decisive(after) == (kind, task)
                found.append((after, 0 if held else max(0, start - at)))
        return found

    @cached_property
    def _after(self) -> dict[int, list[int]]:
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for after, before in self._before.items():
            found[before][after] = None
        for producer, consumers in self._plan.consumers.items():
            found[producer].update(dict.fromkeys(consumers))
        return {task: list(rows) for task, rows in found.items()}
