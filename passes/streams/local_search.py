"""Local search on the simulator: small changes to a placement, kept when it gets no slower.

Models repeat their layers, so that a change which helps in one helps in all: most moves are
made for all tasks of one role at once. Other moves start at what held the last run up: the
chain of waits that leads back from its end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gecompiler.ir.activity import tell
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.target import Evaluator, Target
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.streams.evaluation import Evaluated, evaluate
from gecompiler.passes.streams.roles import roles_of
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.user_priority import by_priority

NO_PRIORITY: Mapping[str, int] = MappingProxyType({})

NAME = "local_search"

STALE = 80
"""Given up after this many moves in a row that gained nothing."""

NEAR = 1.002
"""Good enough: this close to the lower bound."""


@dataclass(frozen=True)
class Effort:
    """How much to try: simulations at most, the bound in us that ends it, and the seed."""

    runs: int
    bound_us: float = 0.0
    seed: int = 0


def improve(
    start: Evaluated,
    target: Target,
    evaluator: Evaluator,
    streams: int,
    fixed: Collection[int],
    effort: Effort,
    priority: Mapping[str, int] = NO_PRIORITY,
) -> Evaluated:
    """The best placement found from ``start`` on, never slower; ``fixed`` tasks keep their streams.

    The same for the same arguments: effort is counted in simulations, not in seconds. With
    ``priority``, by op name, every order tried is one that keeps to the priorities.
    """
    search = _LocalSearch(start, target, evaluator, streams, fixed, effort.seed)
    search.priority = priority
    stale = 0
    for run in range(effort.runs):
        tell("improving the best schedule found", run, effort.runs)
        if stale >= STALE or search.best.makespan_ns <= effort.bound_us * 1000 * NEAR:
            break
        stale = 0 if search.step() else stale + 1
    return search.best


class _LocalSearch:
    def __init__(
        self,
        start: Evaluated,
        target: Target,
        evaluator: Evaluator,
        streams: int,
        fixed: Collection[int],
        seed: int,
    ) -> None:
        self.best = start
        self.target = target
        self.evaluator = evaluator
        self.graph = start.placement.graph
        self.streams = max(streams, 1 + max(start.placement.stream, default=0))
        self.random = random.Random(seed)
        self.priority = NO_PRIORITY
        roles = roles_of(self.graph)
        self.groups = [
            [t for t in group if t not in fixed] for group in roles if not set(group) <= set(fixed)
        ]
        self.weights = [math.fsum(self.graph.alone_us[t] + 1.0 for t in g) for g in self.groups]
        self.free = [t for t in range(len(self.graph)) if t not in fixed]
        self.moves: list[Callable[[list[int]], list[int] | None]] = [
            self._role_to_stream,
            self._role_to_neighbour,
            self._role_along,
            self._role_in_order,
            self._blocked_to_blocker,
            self._blocked_to_blocker,
            self._blocked_in_order,
        ]

    def step(self) -> bool:
        """One move; whether it made the schedule faster."""
        if not self.free:
            return False
        placement = self.best.placement
        stream = list(placement.stream)
        sequence = self.random.choice(self.moves)(stream) or list(placement.sequence)
        if tuple(stream) == placement.stream and tuple(sequence) == placement.sequence:
            return False
        reasons = {
            **placement.reasons,
            **{
                t: "found by local search"
                for t, (a, b) in enumerate(zip(stream, placement.stream, strict=True))
                if a != b
            },
        }
        moved = replace(
            placement, stream=tuple(stream), sequence=tuple(sequence), reasons=reasons, solver=None
        )
        return self._try(by_priority(moved, self.priority))

    def _try(self, placement: Placement) -> bool:
        try:
            primitive = self.best.synced.primitive
            tried = evaluate(NAME, placement, self.target, self.evaluator, primitive)
        except ScheduleError:  # more event ids than the device has
            return False
        gained = tried.makespan_ns < self.best.makespan_ns
        fewer = len(tried.synced.plan.events) <= len(self.best.synced.plan.events)
        if gained or (tried.makespan_ns == self.best.makespan_ns and fewer):
            self.best = tried
        return gained

    # ---------------------------------------------------------------- moves of roles

    def _role(self) -> list[int]:
        return self.random.choices(self.groups, self.weights)[0]

    def _role_to_stream(self, stream: list[int]) -> None:
        to = self.random.randrange(self.streams)
        for task in self._role():
            stream[task] = to

    def _role_along(self, stream: list[int]) -> None:
        """Each of the role one stream further, so that what runs side by side stays so."""
        by = self.random.randrange(1, self.streams) if self.streams > 1 else 0
        for task in self._role():
            stream[task] = (stream[task] + by) % self.streams

    def _role_to_neighbour(self, stream: list[int]) -> None:
        """Each to the stream of one it depends on, or that depends on it."""
        near = self.random.choice((self.graph.preds, self.graph.succs))
        which = self.random.randrange(4)
        for task in self._role():
            if near[task]:
                stream[task] = stream[near[task][which % len(near[task])]]

    def _role_in_order(self, _: list[int]) -> list[int]:
        """All of the role as early or as late in the order as their neighbours allow."""
        return self._shifted(self._role(), early=self.random.random() < 0.5)

    # ---------------------------------------------------------------- moves where it waits

    def _blocked(self) -> tuple[int, int] | None:
        """A task of the chain that the end waited for, and what held it up."""
        chain = waiting_chain(self.best.timeline)
        events = [pair for pair in chain if pair[2]]
        if not events:
            return None
        task, blocker, _ = self.random.choice(events)
        return task, blocker

    def _blocked_to_blocker(self, stream: list[int]) -> None:
        found = self._blocked()
        if found is None:
            return
        task, blocker = found if self.random.random() < 0.5 else found[::-1]
        if task in self.free:
            stream[task] = stream[blocker]

    def _blocked_in_order(self, stream: list[int]) -> list[int] | None:
        found = self._blocked()
        if found is None:
            return self._shifted([self.random.choice(self.free)], early=True)
        if self.random.random() < 0.3 and found[0] in self.free:
            stream[found[0]] = self.random.randrange(self.streams)
        return self._shifted([found[self.random.randrange(2)]], early=self.random.random() < 0.7)

    def _shifted(self, tasks: Sequence[int], *, early: bool) -> list[int]:
        """The order with these tasks right after what they need, or right before their users."""
        order = self.best.placement.sequence
        moved = set(tasks)
        key = [0.0] * len(order)
        for place, task in enumerate(order):
            key[task] = float(place)
        near = self.graph.preds if early else self.graph.succs
        for task in order if early else reversed(order):
            if task in moved and near[task]:
                others = [key[other] for other in near[task]]
                key[task] = max(others) + 1e-6 if early else min(others) - 1e-6
            elif task in moved and early:
                key[task] = -1.0
        return sorted(order, key=key.__getitem__)


def waiting_chain(timeline: Timeline) -> list[tuple[int, int, bool]]:
    """From the task that ended last backwards: (task, what it waited for, whether by an event)."""
    spans = {span.task: span for span in timeline.spans}
    if not spans:
        return []
    span = max(spans.values(), key=lambda s: (s.end_ns, s.task))
    found: list[tuple[int, int, bool]] = []
    while span.waited_for is not None:
        found.append((span.task, span.waited_for, span.wait_cause == "event"))
        span = spans[span.waited_for]
    return found
