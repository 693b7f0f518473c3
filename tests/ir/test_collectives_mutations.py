"""Collectives of several ranks, mutated: judged as by trying every pair and the whole closure."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain, combinations, product

import networkx as nx

from gecompiler.ir.schedule import Communicator, Demand, Event, Limits, Schedule, Task
from gecompiler.ir.schedule_verify import verify_schedule

LIMITS = Limits(8, 1 << 20, 1000, 1 << 20, 24, 48)


def built(rng: random.Random) -> Schedule:
    """The same tasks on every rank; collectives of one or two communicators on some streams."""
    ranks, streams = rng.randint(2, 3), rng.randint(1, 3)
    groups = ["tp", "dp"][: rng.randint(1, 2)]
    plan = []
    for i in range(rng.randint(2, 7)):
        group = rng.choice(["", *groups])
        cores = rng.choice((8, 20, 32)) if group else 4
        plan.append((f"op{i}", rng.randrange(streams), group, cores))
    tasks: list[Task] = []
    events: list[Event] = []
    for rank in range(ranks):
        first, places, last = len(tasks), [0] * streams, dict[str, int]()
        for i, (name, stream, group, cores) in enumerate(plan):
            demand = Demand(vector_cores=cores, vector_us=1.0)
            kind = "collective" if group else "kernel"
            task = Task(
                first + i, f"{rank}:{name}", kind, stream, places[stream],
                demand=demand, rank=rank, communicator=group,
            )  # fmt: skip
            places[stream] += 1
            if group and group in last and tasks[last[group]].stream != stream:
                events.append(Event(last[group], task.id, "control", event_id=len(events)))
            if group:
                last[group] = task.id
            tasks.append(task)
    members = tuple(Communicator(g, tuple(range(ranks))) for g in groups)
    return Schedule(
        "m", "d", "hand", tuple(tasks), tuple(events), (), LIMITS, communicators=members
    )


def mutate(s: Schedule, rng: random.Random) -> Schedule:
    kind = rng.randrange(4)
    if kind == 0 and s.events:
        at = rng.randrange(len(s.events))
        return replace(s, events=s.events[:at] + s.events[at + 1 :])
    if kind == 1:
        a, b = rng.randrange(len(s.tasks)), rng.randrange(len(s.tasks))
        if s.tasks[a].rank == s.tasks[b].rank and a != b:
            extra = Event(a, b, "control", event_id=len(s.tasks) + len(s.events))
            return replace(s, events=(*s.events, extra))
    if kind == 2:
        queue = rng.choice(list(s.streams.values()))
        if len(queue) > 1:
            at = rng.randrange(len(queue) - 1)
            one, two = queue[at], queue[at + 1]
            tasks = list(s.tasks)
            tasks[one.id] = replace(one, order=two.order)
            tasks[two.id] = replace(two, order=one.order)
            return replace(s, tasks=tuple(tasks))
    at = rng.randrange(len(s.tasks))
    cores = replace(s.tasks[at].demand, vector_cores=rng.choice((8, 20, 40)))
    tasks = list(s.tasks)
    tasks[at] = replace(tasks[at], demand=cores)
    return replace(s, tasks=tuple(tasks))


def is_safe(s: Schedule) -> bool:
    local: nx.DiGraph = nx.DiGraph((e.producer, e.consumer) for e in s.events)
    local.add_nodes_from(t.id for t in s.tasks)
    for queue in s.streams.values():
        local.add_edges_from((a.id, b.id) for a, b in combinations(queue, 2))
    if not _meets(s, local):
        return False
    ahead = {t: nx.descendants(local, t) for t in local}
    return _in_one_order(s, ahead) and _fits(s, ahead)


def _meets(s: Schedule, local: nx.DiGraph) -> bool:
    """Whether nobody waits in a circle when the parts of a collective go together."""

    def party(task: int) -> tuple[str, str] | int:
        found = s.tasks[task]
        return (found.communicator, found.name[2:]) if found.communicator else task

    joint: nx.DiGraph = nx.DiGraph((party(a), party(b)) for a, b in local.edges)
    return nx.is_directed_acyclic_graph(joint)


def _ordered(a: Task, b: Task, ahead: dict[int, set[int]]) -> bool:
    return b.id in ahead[a.id] or a.id in ahead[b.id]


def _in_one_order(s: Schedule, ahead: dict[int, set[int]]) -> bool:
    orders: dict[str, set[tuple[str, ...]]] = {}
    for group, rank in product(s.communicators, sorted({t.rank for t in s.tasks})):
        own = [t for t in s.tasks if t.rank == rank and t.communicator == group.name]
        if not all(_ordered(a, b, ahead) for a, b in combinations(own, 2)):
            return False
        ids = {t.id for t in own}
        own.sort(key=lambda t: -len(ahead[t.id] & ids))
        orders.setdefault(group.name, set()).add(tuple(t.name[2:] for t in own))
    return all(len(found) == 1 for found in orders.values())


def _fits(s: Schedule, ahead: dict[int, set[int]]) -> bool:
    """Whether all collectives of a rank that may run at once find their cores."""
    for rank in sorted({t.rank for t in s.tasks}):
        own = [t for t in s.tasks if t.rank == rank and t.communicator]
        for some in chain(combinations(own, 2), combinations(own, 3)):
            wide = sum(t.demand.vector_cores for t in some) > s.limits.vector_cores
            if wide and not any(_ordered(a, b, ahead) for a, b in combinations(some, 2)):
                return False
    return True


def test_four_thousand_mutants_are_judged_as_by_the_closure() -> None:
    verdicts = {True: 0, False: 0}
    for seed in range(400):
        rng = random.Random(seed)
        schedule = built(rng)
        for _ in range(10):
            mutant = schedule
            for _ in range(rng.randint(0, 2)):
                mutant = mutate(mutant, rng)
            findings = verify_schedule(mutant)
            safe = is_safe(mutant)
            assert (not findings) == safe, (seed, findings)
            verdicts[safe] += 1
    assert min(verdicts.values()) > 800
