"""The event loop: runs a plan in continuous time, from one change of rates to the next.

What happens at one instant is taken together: steps that end, tasks that end with them, tasks
that may then start; after that the rates of the domains touched are shared anew. Between two
instants all rates are constant, so an event costs O(running tasks * resources), and only in the
domain in which it happens.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from gecompiler.backends.simulator.domain import Curve, Domain, Slot
from gecompiler.backends.simulator.plan import FIXED, PEERS, Plan
from gecompiler.ir.timeline import WaitCause


@dataclass(slots=True)
class Costs:
    """The device's times between tasks, in ns."""

    gap: float
    record: float
    wait: float


@dataclass(slots=True)
class Outcome:
    """What happened, by task index; the curves by resource."""

    start: list[float]
    end: list[float]
    waited_for: list[int]
    cause: list[WaitCause]
    spent: list[dict[int, float]]
    """Time by what bound the task: a resource of its domain, or FIXED or PEERS."""
    peer: dict[int, int] = field(default_factory=dict)
    """The part of the collective that came last, for each part that waited for it."""
    curves: list[Curve] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    """Tasks that never started or ended: a wait cycle."""


class Engine:
    """One simulation of one plan."""

    def __init__(self, plan: Plan, costs: Costs) -> None:
        count = len(plan.work)
        self.plan = plan
        self.costs = costs
        self.domains = [Domain(len(names)) for names in plan.domains]
        self.timers: list[tuple[float, int]] = []
        self.pending = plan.waits.copy()
        self.ready = [0.0] * count
        self.ready_by = [-1] * count
        self.position = [0] * len(plan.queues)
        self.free = [0.0] * len(plan.queues)
        self.last = [-1] * len(plan.queues)
        self.arrived = [0] * len(plan.parties)
        self.running: dict[int, Slot] = {}
        """What collectives are doing, by their first part."""
        self.out = Outcome(
            [-1.0] * count, [-1.0] * count, [-1] * count, ["start"] * count, [{} for _ in plan.work]
        )

    def run(self) -> Outcome:
        """Runs until nothing more can happen."""
        for stream, queue in enumerate(self.plan.queues):
            if queue:
                self._try_launch(stream)
        domains, timers, begin = self.domains, self.timers, self._begin
        end = self._end_joint if self.plan.joint else self._end
        while (now := self._next()) < math.inf:
            for domain in domains:
                if domain.next <= now:
                    for task in domain.advance(now):
                        end(task, now)
            while timers and timers[0][0] <= now:
                begin(heapq.heappop(timers)[1], now)
            for domain in domains:
                if domain.changed:
                    domain.reshare(now)
        return self._outcome()

    def _next(self) -> float:
        """The next instant at which something happens."""
        now = self.timers[0][0] if self.timers else math.inf
        for domain in self.domains:
            now = min(now, domain.next)
        return now

    def _begin(self, task: int, now: float) -> None:
        """The task's start-up is over; a collective's part may have to wait for the others."""
        party = self.plan.party_of.get(task, -1)
        if party < 0:
            self._go(task, now)
            return
        self.arrived[party] += 1
        members = self.plan.parties[party]
        if self.arrived[party] < len(members):
            return
        for member in members:
            if member != task and self._lost(member, now) > 0.0:
                self.out.peer[member] = task
        step = self.plan.joint.get(party)
        if step is None:
            for member in members:
                self._go(member, now)
            return
        for member in members:
            self._book_start(member, now)
        slot = Slot(members[0], (step,), {})
        self.domains[self.plan.domain_of[members[0]]].start(slot, now)
        self.running[members[0]] = slot

    def _lost(self, task: int, now: float) -> float:
        """How long a part has waited for the others since its start-up was over."""
        return now - self.out.start[task] - self.plan.work[task].fixed_ns

    def _book_start(self, task: int, now: float) -> None:
        work, spent = self.plan.work[task], self.out.spent[task]
        if work.fixed_ns > 0.0:
            spent[FIXED] = work.fixed_ns
        if task in self.plan.party_of:
            lost = self._lost(task, now)
            if lost > 0.0:
                spent[PEERS] = lost

    def _end_joint(self, task: int, now: float) -> None:
        """Ends a task, or all parts of the collective that it stands for."""
        slot = self.running.pop(task, None)
        if slot is None:
            self._end(task, now)
            return
        for member in self.plan.parties[self.plan.party_of[task]]:
            self.out.spent[member].update(slot.spent)
            self._end(member, now)

    def _go(self, task: int, now: float) -> None:
        work = self.plan.work[task]
        self._book_start(task, now)
        if not work.steps:
            self._end(task, now)
            return
        slot = Slot(task, work.steps, self.out.spent[task])
        self.domains[self.plan.domain_of[task]].start(slot, now)

    def _end(self, task: int, now: float) -> None:
        plan, costs = self.plan, self.costs
        self.out.end[task] = now
        stream = plan.stream_of[task]
        consumers = plan.consumers.get(task)
        self.last[stream] = task
        self.position[stream] += 1
        self.free[stream] = now + costs.gap
        if consumers:
            self.free[stream] += costs.record
            signal = now + costs.record + costs.wait
            for consumer in consumers:
                self.pending[consumer] -= 1
                if signal > self.ready[consumer]:
                    self.ready[consumer], self.ready_by[consumer] = signal, task
                if not self.pending[consumer] and plan.stream_of[consumer] != stream:
                    self._try_launch(plan.stream_of[consumer], consumer)
        if self.position[stream] < len(plan.queues[stream]):
            self._try_launch(stream)

    def _try_launch(self, stream: int, only: int = -1) -> None:
        """Starts the head of the stream if it waits for nothing more."""
        queue, position = self.plan.queues[stream], self.position[stream]
        if position >= len(queue):
            return
        task = queue[position]
        if self.pending[task] or self.out.start[task] >= 0.0 or only not in (-1, task):
            return
        start = self.free[stream] + self.plan.waits[task] * self.costs.wait
        previous = self.last[stream]
        cause: WaitCause = "start" if previous < 0 else "stream"
        released_by = previous
        if self.ready[task] > start:
            start, cause, released_by = self.ready[task], "event", self.ready_by[task]
        issued = self.plan.issued
        if issued and issued[task] > start:
            start, cause = issued[task], "resource"
        self.out.start[task] = start
        self.out.cause[task] = cause
        self.out.waited_for[task] = released_by
        heapq.heappush(self.timers, (start + self.plan.work[task].fixed_ns, task))

    def _outcome(self) -> Outcome:
        out = self.out
        out.stuck = [i for i, end in enumerate(out.end) if end < 0.0]
        curves: dict[int, Curve] = {}
        for domain, names in zip(self.domains, self.plan.domains, strict=True):
            curves.update(zip(names, domain.curves(), strict=True))
        out.curves = [curves[r] for r in range(len(self.plan.resources))]
        return out
