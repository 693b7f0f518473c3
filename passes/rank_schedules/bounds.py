"""Lower bounds of the time of all ranks together: chains through collectives, and links.

What comes after a collective on one rank comes after all that its other ranks must do before it,
so that chains of dependencies lead from rank to rank. A rank's part of a collective begins with
its start-up, waits for the others, and then moves data:

    meeting = max over parts (start + start-up)        end = meeting + moving

Tasks are taken each alone, with the cheaper of gap and event between two. On a link, which carries
what all ranks put there, and on each resource of a card the work of head-body-tail follows
(`window_bound`), with heads and tails through all ranks. All of it holds for any placement of the
tasks on streams.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.schedule_verify.parts import Key as Part
from gecompiler.ir.schedule_verify.parts import keys
from gecompiler.ir.target import Target
from gecompiler.passes.rank_schedules.template import TemplateSchedule
from gecompiler.passes.scheduling.task_graph import capacity_of
from gecompiler.passes.streams.bounds import whole_ns
from gecompiler.passes.streams.window_bound import Row, one_machine

Key = tuple[str, Part]
"""A collective: its communicator, and what its parts share."""

LINK = -1
"""In the place of the rank that a resource belongs to."""


@dataclass(frozen=True)
class Linked:
    """The tasks of all ranks, and which wait for which by their graphs alone."""

    tasks: Sequence[Task]
    preds: Sequence[Sequence[int]]
    succs: Sequence[Sequence[int]]
    members: Mapping[Key, Sequence[int]]
    """The parts of each collective."""
    key: Mapping[int, Key]
    """The collective that a task is a part of."""

    @staticmethod
    def of(schedule: Schedule, parts: Sequence[TemplateSchedule]) -> Linked | None:
        """``parts`` are those of the schedule's ranks, in its order of them.

        None where a strategy split tasks, which then are not those of the graph.
        """
        count = len(schedule.tasks)
        preds: list[list[int]] = [[] for _ in range(count)]
        succs: list[list[int]] = [[] for _ in range(count)]
        base = 0
        for part in parts:
            place = {task.name: base + task.id for task in part.schedule.tasks}
            if len(place) != len(part.tasks) or any(t.name not in place for t in part.tasks.tasks):
                return None
            at = [place[task.name] for task in part.tasks.tasks]
            for own, before in enumerate(part.tasks.preds):
                preds[at[own]] = [at[p] for p in before]
                for p in before:
                    succs[at[p]].append(at[own])
            base += len(part.schedule.tasks)
        members: dict[Key, list[int]] = defaultdict(list)
        key: dict[int, Key] = {}
        shared = keys(schedule)
        for task in schedule.tasks:
            if task.kind == "collective":
                key[task.id] = task.communicator, shared[task.id]
                members[key[task.id]].append(task.id)
        return Linked(schedule.tasks, preds, succs, members, key)

    def order(self) -> Iterator[tuple[int, ...]]:
        """Tasks and whole collectives, each after all that any of its parts waits for."""
        left = [len(p) for p in self.preds]
        come: dict[Key, int] = defaultdict(int)
        ready = [task for task, count in enumerate(left) if not count]
        while ready:
            task = ready.pop()
            key = self.key.get(task)
            group: Sequence[int] = (task,)
            if key is not None:
                come[key] += 1
                group = self.members[key]
                if come[key] < len(group):
                    continue
            yield tuple(group)
            for member in group:
                for after in self.succs[member]:
                    left[after] -= 1
                    if not left[after]:
                        ready.append(after)


@dataclass
class Spans:
    """The earliest start of every task's own work, and what must follow its end, in us."""

    head: list[float]
    """From the beginning of all to the task's start."""
    begin: list[float]
    """To when it moves data or computes: a collective has met by then."""
    tail: list[float]
    """From its end to the end of all."""
    longest: float = 0.0
    body: list[float] = field(default_factory=list)
    """What a task takes after its start-up."""


def spans_of(linked: Linked, target: Target) -> Spans:
    """Heads and tails through all ranks. O(tasks + dependencies)."""
    count, step = len(linked.tasks), min(target.task_gap_us, target.event_us)
    alone = [target.alone_us(task.demand) for task in linked.tasks]
    fixed = [min(t.demand.fixed_us, us) for t, us in zip(linked.tasks, alone, strict=True)]
    body = [us - first for us, first in zip(alone, fixed, strict=True)]
    found = Spans([0.0] * count, [0.0] * count, [0.0] * count, body=body)
    order = list(linked.order())
    end = [0.0] * count
    for group in order:
        for task in group:
            found.head[task] = max((end[p] + step for p in linked.preds[task]), default=0.0)
        meeting = max(found.head[task] + fixed[task] for task in group)
        for task in group:
            found.begin[task] = meeting
            end[task] = meeting + body[task]
    found.longest = max(end, default=0.0)
    ahead = [0.0] * count
    for group in reversed(order):
        for task in group:
            found.tail[task] = max((ahead[s] + step for s in linked.succs[task]), default=0.0)
        moving = max(body[task] + found.tail[task] for task in group)
        for task in group:
            ahead[task] = fixed[task] + moving
    return found


def rank_bounds(
    schedule: Schedule, parts: Sequence[TemplateSchedule], target: Target, streams: int
) -> dict[str, float]:
    """Bounds by name: ``critical_path``, ``streams``, resources, and of each kind of link one link.

    Of a resource that every card has, that of the card where it is highest; of links the highest,
    of equals the first by name. Empty where tasks are not those of the graphs. ``target`` is of
    any of the cards.
    """
    linked = Linked.of(schedule, parts)
    if linked is None or not linked.tasks:
        return {}
    spans = spans_of(linked, target)
    found = {"critical_path": whole_ns(spans.longest)}
    links: dict[str, tuple[float, str]] = {}
    for (owner, resource), rows in sorted(_rows(linked, spans, target, streams).items()):
        us = whole_ns(one_machine(rows))
        if owner == LINK:
            tier = resource.partition(":")[0]
            if us > links.get(tier, (0.0, ""))[0]:
                links[tier] = us, resource
        else:
            found[resource] = max(found.get(resource, 0.0), us)
    found |= {name: us for us, name in links.values()}
    return dict(sorted(found.items()))


def _rows(
    linked: Linked, spans: Spans, target: Target, streams: int
) -> dict[tuple[int, str], list[Row]]:
    """The work on every link, which belongs to no rank, and on every resource of a card."""
    capacities = target.capacities()
    rows: dict[tuple[int, str], list[Row]] = defaultdict(list)
    lanes = max(1, streams)
    for task in linked.tasks:
        links = {name for name, _ in task.demand.link_bytes}
        for resource, amount in target.work(task.demand).items():
            if amount > 0:
                owner = LINK if resource in links else task.rank
                us = amount / capacity_of(resource, capacities)
                rows[owner, resource].append((spans.begin[task.id], us, spans.tail[task.id]))
        held = task.demand.fixed_us + spans.body[task.id] + target.task_gap_us
        after = spans.tail[task.id] - target.task_gap_us
        rows[task.rank, "streams"].append((spans.head[task.id], held / lanes, after))
    return rows
