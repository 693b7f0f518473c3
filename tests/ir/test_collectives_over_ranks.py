"""Schedules of several ranks, mutated: judged as by running them, step by step."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import networkx as nx

from gecompiler.ir.schedule import Communicator, Demand, Event, Limits, Schedule, Task
from gecompiler.ir.schedule_verify import verify_schedule

LIMITS = Limits(8, 1 << 20, 1000, 1 << 20, 24, 48)


class Build:
    """A correct schedule: every rank runs its parts in the order in which they were thought of."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ranks = rng.randint(2, 4)
        self.streams = rng.randint(1, 3)
        self.groups = {"tp": tuple(range(self.ranks))}
        if self.ranks > 2:
            self.groups["dp"] = tuple(sorted(rng.sample(range(self.ranks), 2)))
        self.tasks: list[Task] = []
        self.events: list[Event] = []
        self.last: dict[tuple[int, str], Task] = {}
        self.places: dict[tuple[int, int], int] = {}

    def schedule(self) -> Schedule:
        for number in range(self.rng.randint(2, 7)):
            kind = self.rng.choice(("kernel", "collective", "collective", "pair"))
            stream = self.rng.randrange(self.streams)
            if kind == "kernel":
                for rank in range(self.ranks):
                    self.put(rank, stream, f"op{number}", "", "Relu", "")
            elif kind == "collective":
                group = self.rng.choice(("tp", *self.groups))
                wanted = self.rng.choice(("sum", "max")), self.rng.choice((4, 8))
                for rank in self.groups[group]:
                    text = f"AllReduce {wanted[0]} f16[{wanted[1]}]"
                    self.put(rank, stream, f"op{number}", group, "AllReduce", text)
            else:
                a, b = self.rng.sample(range(self.ranks), 2)
                name, tag = f"pp:0/{a}>{b}", self.rng.randrange(2)
                self.groups[name] = (a, b)
                self.put(a, stream, f"send{number}", name, "Send", f"sent #{tag}")
                self.put(b, stream, f"recv{number}", name, "Recv", f"sent #{tag}")
        members = tuple(Communicator(g, ranks) for g, ranks in self.groups.items())
        return Schedule(
            "m", "d", "hand", tuple(self.tasks), tuple(self.events), (), LIMITS,
            communicators=members,
        )  # fmt: skip

    def put(
        self, rank: int, stream: int, name: str, group: str, op_type: str, signature: str
    ) -> None:
        place = self.places.get((rank, stream), 0)
        self.places[rank, stream] = place + 1
        task = Task(
            len(self.tasks), f"{rank}:{name}", "collective" if group else "kernel", stream, place,
            op_type=op_type, demand=Demand(), rank=rank, communicator=group, signature=signature,
        )  # fmt: skip
        before = self.last.get((rank, group))
        if group and before is not None and before.stream != stream:
            self.events.append(Event(before.id, task.id, "control", event_id=len(self.events)))
        self.last[rank, group] = task
        self.tasks.append(task)


def mutate(s: Schedule, rng: random.Random) -> Schedule:
    kind = rng.randrange(6)
    tasks = list(s.tasks)
    at = rng.randrange(len(tasks))
    if kind == 0 and s.events:
        gone = rng.randrange(len(s.events))
        return replace(s, events=s.events[:gone] + s.events[gone + 1 :])
    if kind == 1:
        other = rng.randrange(len(tasks))
        if tasks[at].rank == tasks[other].rank and at != other:
            extra = Event(at, other, "control", event_id=len(s.events))
            return replace(s, events=(*s.events, extra))
    if kind == 2:
        queue = rng.choice(list(s.streams.values()))
        if len(queue) > 1:
            first = rng.randrange(len(queue) - 1)
            one, two = queue[first], queue[first + 1]
            tasks[one.id] = replace(one, order=two.order)
            tasks[two.id] = replace(two, order=one.order)
            return replace(s, tasks=tuple(tasks))
    if kind == 3 and len(tasks) > 1:
        return without(s, at)
    if kind == 4 and tasks[at].communicator:
        change = rng.choice(("AllReduce sum f16[4]", "sent #0", "sent #1"))
        tasks[at] = replace(tasks[at], signature=change)
        return replace(s, tasks=tuple(tasks))
    if kind == 5 and tasks[at].communicator:
        tasks[at] = replace(tasks[at], communicator=rng.choice(s.communicators).name)
        return replace(s, tasks=tuple(tasks))
    return s


def without(s: Schedule, gone: int) -> Schedule:
    """The schedule without one task; those behind it move up."""
    lost = s.tasks[gone]
    new = {t.id: i for i, t in enumerate(t for t in s.tasks if t.id != gone)}
    tasks = []
    for task in s.tasks:
        if task.id == gone:
            continue
        behind = (task.rank, task.stream) == (lost.rank, lost.stream) and task.order > lost.order
        tasks.append(replace(task, id=new[task.id], order=task.order - behind))
    events = [
        replace(e, producer=new[e.producer], consumer=new[e.consumer])
        for e in s.events
        if gone not in (e.producer, e.consumer)
    ]
    return replace(s, tasks=tuple(tasks), events=tuple(events))


# ------------------------------------------------------------------ the oracle


class Run:
    """Ranks that start what may start and match collectives as they come."""

    def __init__(self, s: Schedule) -> None:
        self.s = s
        self.members = {c.name: c.ranks for c in s.communicators}
        self.position = dict.fromkeys(s.streams, 0)
        self.done: set[int] = set()
        self.waiting: dict[str, dict[int, Task]] = {}
        self.fits = True

    def heads(self) -> list[Task]:
        """The next task of every stream that waits for no event."""
        found = []
        for lane, queue in self.s.streams.items():
            if self.position[lane] < len(queue):
                task = queue[self.position[lane]]
                if all(e.producer in self.done for e in self.s.waits.get(task.id, ())):
                    found.append(task)
        return found

    def start(self, task: Task) -> bool:
        """Whether anything came of it."""
        if task.id in self.done:
            return False  # with the part of another rank, a moment ago
        if not task.communicator:
            self.end(task)
            return True
        there = self.waiting.setdefault(task.communicator, {})
        if task.rank in there:
            return False  # it waits already, or the one before it does
        there[task.rank] = task
        if len(there) == len(self.members[task.communicator]):
            self.fits = self.fits and _agree(list(there.values()))
            for part in there.values():
                self.end(part)
            there.clear()
        return True

    def end(self, task: Task) -> None:
        self.done.add(task.id)
        self.position[task.rank, task.stream] += 1


def runs(s: Schedule) -> bool:
    """Whether the schedule runs to its end, all collectives made of parts that fit."""
    run = Run(s)
    if any(t.rank not in run.members[t.communicator] for t in s.tasks if t.communicator):
        return False
    if not _enforced(s):
        return False
    while run.fits:
        started = [run.start(task) for task in run.heads()]
        if not any(started):
            break
    return run.fits and len(run.done) == len(s.tasks)


def _enforced(s: Schedule) -> bool:
    """Whether on every rank streams and events order the collectives of each communicator."""
    local: nx.DiGraph = nx.DiGraph((e.producer, e.consumer) for e in s.events)
    local.add_nodes_from(t.id for t in s.tasks)
    for queue in s.streams.values():
        local.add_edges_from((a.id, b.id) for a, b in combinations(queue, 2))
    if not nx.is_directed_acyclic_graph(local):
        return False
    ahead = {t: nx.descendants(local, t) for t in local}
    parts = [t for t in s.tasks if t.communicator]
    return all(
        b.id in ahead[a.id] or a.id in ahead[b.id]
        for a, b in combinations(parts, 2)
        if a.rank == b.rank and a.communicator == b.communicator
    )


def _agree(parts: list[Task]) -> bool:
    if len({t.signature for t in parts}) > 1:
        return False
    kinds = sorted(t.op_type for t in parts)
    if "Send" in kinds or "Recv" in kinds:
        return kinds == ["Recv", "Send"]
    return len({t.name.partition(":")[2] for t in parts}) == 1 and len(set(kinds)) == 1


def test_mutants_are_judged_as_by_running_them() -> None:
    verdicts = {True: 0, False: 0}
    for seed in range(500):
        rng = random.Random(seed)
        schedule = Build(rng).schedule()
        assert runs(schedule)
        assert not verify_schedule(schedule), seed
        for _ in range(8):
            mutant = schedule
            for _ in range(rng.randint(1, 2)):
                mutant = mutate(mutant, rng)
            findings = verify_schedule(mutant)
            fine = runs(mutant)
            assert (not findings) == fine, (seed, findings)
            verdicts[fine] += 1
            for finding in findings:
                assert finding.fix or "no member" in finding.message
    assert min(verdicts.values()) > 500
