"""Structure of a schedule, and the order that streams and events enforce."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding
from gecompiler.ir.schedule_verify.parts import shared_name, teams

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule

__all__ = ["HappensBefore", "check_structure", "shared_name"]


def check_structure(schedule: Schedule) -> Iterator[Finding]:
    """Records that contradict each other: ids, places on streams, events, controls, buffers."""
    tasks = schedule.tasks
    places: dict[tuple[int, int, int], str] = {}
    for i, task in enumerate(tasks):
        if task.id != i:
            yield _malformed(f"task {task.name!r} has id {task.id}, expected {i}", task.name)
        place = (task.rank, task.stream, task.order)
        if place in places:
            text = f"tasks {places[place]!r} and {task.name!r} are both number {task.order}"
            yield _malformed(f"{text} on stream {task.stream}", places[place], task.name)
        places[place] = task.name
        if min(task.stream, task.order, task.rank) < 0:
            yield _malformed(f"task {task.name!r} has a negative stream, order or rank", task.name)
    pairs = [("an event", e.producer, e.consumer) for e in schedule.events]
    pairs += [("a control", c.producer, c.consumer) for c in schedule.controls]
    for what, producer, consumer in pairs:
        missing = [t for t in (producer, consumer) if not 0 <= t < len(tasks)]
        if missing:
            there = [tasks[t].name for t in (producer, consumer) if 0 <= t < len(tasks)]
            yield _malformed(f"{what} names task {missing[0]} of {len(tasks)}", *there)
        elif tasks[producer].rank != tasks[consumer].rank:
            names = (tasks[producer].name, tasks[consumer].name)
            yield _malformed(f"{what} joins {names[0]!r} and {names[1]!r} of two ranks", *names)
    yield from _check_communicators(schedule)
    yield from _check_buffers(schedule)


def _check_communicators(schedule: Schedule) -> Iterator[Finding]:
    known: set[str] = set()
    for communicator in schedule.communicators:
        if communicator.name in known:
            yield _malformed(f"communicator {communicator.name!r} is declared twice")
        known.add(communicator.name)
        if len(set(communicator.ranks)) < len(communicator.ranks):
            yield _malformed(f"communicator {communicator.name!r} has a rank twice")


def _check_buffers(schedule: Schedule) -> Iterator[Finding]:
    known = schedule.buffer_of
    if len(known) < len(schedule.buffers):
        yield _malformed("a tensor has two buffers")
    for buffer in schedule.buffers:
        if buffer.alias_of is not None and buffer.alias_of not in known:
            text = f"tensor {buffer.tensor!r} shares memory with {buffer.alias_of!r}"
            yield _malformed(f"{text}, which has no buffer")
        if buffer.bytes < 0:
            yield _malformed(f"tensor {buffer.tensor!r} has {buffer.bytes} bytes")
    for tensor in _alias_circles(schedule):
        yield _malformed(f"tensor {tensor!r} is an alias of itself")
    for task in schedule.tasks:
        for tensor in (*task.reads, *task.writes):
            if tensor not in known:
                text = f"task {task.name!r} uses {tensor!r}, which has no buffer"
                yield _malformed(text, task.name)
            elif known[tensor].rank != task.rank:
                yield _malformed(f"task {task.name!r} uses {tensor!r} of another rank", task.name)


def _alias_circles(schedule: Schedule) -> Iterator[str]:
    """A tensor of each circle of aliases. Linear: nothing is walked twice."""
    known = schedule.buffer_of
    walk: dict[str, int] = {}
    for number, buffer in enumerate(schedule.buffers):
        tensor: str | None = buffer.tensor
        while tensor is not None and tensor in known and tensor not in walk:
            walk[tensor] = number
            tensor = known[tensor].alias_of
        if tensor is not None and walk.get(tensor) == number:
            yield tensor


def _malformed(message: str, *tasks: str) -> Finding:
    return Finding("malformed", "deadlock", message, tasks)


class HappensBefore:
    """Which task is surely done when another starts, by stream order and events.

    For every task the furthest task of each stream of its rank that leads to it. ``deadlocks``
    holds the circles in which tasks wait, also through collectives, whose parts wait for each
    other; where there is one, nothing else may be asked.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        count = len(schedule.tasks)
        self._before: list[list[int]] = [[] for _ in range(count)]
        self._lane = [0] * count
        self._place = [0] * count
        widths: dict[int, int] = {}
        for (rank, _), tasks in schedule.streams.items():
            lane = widths.get(rank, 0)
            widths[rank] = lane + 1
            for i, task in enumerate(tasks):
                self._lane[task.id], self._place[task.id] = lane, i
                if i:
                    self._before[task.id].append(tasks[i - 1].id)
        for event in schedule.events:
            self._before[event.consumer].append(event.producer)
        self.order: list[int] = []
        """All tasks, each after those that lead to it (incomplete where there is a deadlock)."""
        self.deadlocks: list[Finding] = []
        self._sort()
        self.position = [0] * count
        """Each task's place in ``order``."""
        for i, t in enumerate(self.order):
            self.position[t] = i
        self._reach: list[tuple[int, ...]] = [()] * count
        if not self.deadlocks:
            self._spread(widths)

    def _sort(self) -> None:
        """Kahn's algorithm, where the parts of one collective go together."""
        team = teams(self._schedule)
        waiting = [0] * len(self._before)
        after: list[list[int]] = [[] for _ in self._before]
        for task, before in enumerate(self._before):
            for other in before:
                after[team[other][0]].append(team[task][0])
                waiting[team[task][0]] += 1
        ready = deque(t for t in range(len(waiting)) if team[t][0] == t and not waiting[t])
        while ready:
            first = ready.popleft()
            self.order += team[first]
            for then in after[first]:
                waiting[then] -= 1
                if not waiting[then]:
                    ready.append(then)
        if len(self.order) < len(waiting):
            stuck = {t for t in range(len(waiting)) if waiting[team[t][0]]}
            self.deadlocks.append(self._circle(stuck, team))

    def _circle(self, stuck: set[int], team: list[tuple[int, ...]]) -> Finding:
        """One circle among the tasks that are stuck."""
        task = min(stuck)
        path: dict[int, int] = {}
        while team[task][0] not in path:
            path[team[task][0]] = task
            task = min(b for t in team[task] for b in self._before[t] if b in stuck)
        steps = list(path.values())
        circle = steps[steps.index(path[team[task][0]]) :][::-1]
        first = circle.index(min(circle))
        tasks = self._schedule.tasks
        names = [tasks[t].name for t in (*circle[first:], *circle[:first])]
        text = " -> ".join(repr(n) for n in [*names, names[0]])
        return Finding(
            "deadlock",
            "deadlock",
            f"tasks wait for each other in a circle: {text}",
            tuple(names),
            fix=self._break(set(circle)),
        )

    def _break(self, circle: set[int]) -> str:
        """An event of the circle, which is what can be taken out of it."""
        tasks = self._schedule.tasks
        for event in self._schedule.events:
            if event.producer in circle and event.consumer in circle:
                names = (tasks[event.consumer].name, tasks[event.producer].name)
                return f"take out the wait of {names[0]!r} for {names[1]!r}, or exchange the tasks"
        return "bring the collectives into one order on all ranks"

    def _spread(self, widths: dict[int, int]) -> None:
        tasks, lane, place = self._schedule.tasks, self._lane, self._place
        for task in self.order:
            reach = [-1] * widths[tasks[task].rank]
            for other in self._before[task]:
                known = self._reach[other]
                reach = [a if a > b else b for a, b in zip(reach, known, strict=True)]
                reach[lane[other]] = max(reach[lane[other]], place[other])
            self._reach[task] = tuple(reach)

    def ordered(self, a: int, b: int) -> bool:
        """Whether task ``a`` has surely ended when ``b`` starts. Both on one rank."""
        return self._reach[b][self._lane[a]] >= self._place[a]

    def missing(self, a: int, b: int) -> str:
        """Why nothing leads from task ``a`` to ``b``: how far the paths between them come."""
        tasks, known = self._schedule.tasks, self._reach[b][self._lane[a]]
        one, two = tasks[a], tasks[b]
        if a == b:
            return ""
        if self.ordered(b, a):
            return f"the order is the other way round: {two.name!r} ends before {one.name!r} starts"
        queue = self._schedule.streams[one.rank, one.stream]
        last = f"up to {queue[known].name!r} (number {known})" if known >= 0 else "nothing"
        behind = self._first_behind(a, two.rank, two.stream)
        after = "no task there waits for it" if behind is None else f"the first is {behind!r}"
        return (
            f"Stream{one.stream} {one.name!r} (number {self._place[a]}) -> "
            f"Stream{two.stream} {two.name!r} (number {self._place[b]}): when it starts, "
            f"Stream{two.stream} knows of Stream{one.stream} {last}; {after}"
        )

    def _first_behind(self, a: int, rank: int, stream: int) -> str | None:
        """The first task of a stream that waits for task ``a``."""
        queue = self._schedule.streams[rank, stream]
        low, high = 0, len(queue)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.ordered(a, queue[middle].id) else (middle + 1, high)
        return queue[low].name if low < len(queue) else None
