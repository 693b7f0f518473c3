"""Collectives of several ranks: the verifier judges as running them to the end does."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

from gecompiler.ir.schedule import Communicator, Event, Limits, Schedule, Task
from gecompiler.ir.schedule_verify import verify_schedule

LIMITS = Limits(8, 64, 1000, 1 << 20, 8, 16)


def program(rng: random.Random) -> Schedule:
    """Kernels and collectives of two communicators, on two streams of two or three ranks."""
    ranks = rng.randint(2, 3)
    members = {"world": tuple(range(ranks)), "pair": tuple(sorted(rng.sample(range(ranks), 2)))}
    steps = [(rng.choice(("", "world", "pair")), i) for i in range(rng.randint(2, 5))]
    tasks: list[Task] = []
    events: list[Event] = []
    for rank in range(ranks):
        own = list(steps)
        if rng.random() < 0.3:
            a, b = rng.randrange(len(own)), rng.randrange(len(own))
            own[a], own[b] = own[b], own[a]
        if rng.random() < 0.05:
            own.pop()
        used = [0, 0]
        first = len(tasks)
        for name, i in own:
            outside = bool(name) and rank not in members[name] and rng.random() < 0.97
            where = "" if outside else name
            stream = rng.randrange(2) if rng.random() < 0.5 else 0
            kind = "collective" if where else "kernel"
            tasks.append(
                Task(
                    len(tasks), f"{rank}:t{i}", kind, stream, used[stream],
                    rank=rank, communicator=where,
                )
            )  # fmt: skip
            used[stream] += 1
        for a, b in combinations(range(first, len(tasks)), 2):
            if tasks[a].stream != tasks[b].stream and rng.random() < 0.6:
                ends = (b, a) if rng.random() < 0.1 else (a, b)
                events.append(Event(*ends, "control", event_id=len(events)))
    known = tuple(Communicator(n, m) for n, m in members.items())
    return Schedule("m", "d", "s", tuple(tasks), tuple(events), (), LIMITS, communicators=known)


def runs_to_the_end(schedule: Schedule) -> bool:
    """Whether every rank comes through, and meets its partners in one order that is enforced."""
    tasks = schedule.tasks
    waits: list[set[int]] = [set() for _ in tasks]
    for queue in schedule.streams.values():
        for a, b in pairwise(queue):
            waits[b.id].add(a.id)
    for event in schedule.events:
        waits[event.consumer].add(event.producer)
    members = {c.name: set(c.ranks) for c in schedule.communicators}
    done: set[int] = set()
    before: list[set[int]] = [set() for _ in tasks]
    while True:
        begun = {t.id for t in tasks if waits[t.id] <= done}
        fresh = {t for t in begun - done if _met(schedule, t, begun, members)}
        if not fresh:
            break
        for t in fresh:
            before[t] = waits[t].union(*(before[p] for p in waits[t]))
        done |= fresh
    strange = any(t.communicator and t.rank not in members[t.communicator] for t in tasks)
    if strange or len(done) < len(tasks):
        return False
    return all(_one_order(schedule, name, members[name], before) for name in members)


def _one_order(schedule: Schedule, name: str, ranks: set[int], before: list[set[int]]) -> bool:
    """Whether a communicator's collectives are in one order, enforced on every rank."""
    lists = []
    for rank in ranks:
        own = [t for t in schedule.tasks if t.communicator == name and t.rank == rank]
        pairs = combinations((t.id for t in own), 2)
        if any(a not in before[b] and b not in before[a] for a, b in pairs):
            return False
        inorder = sorted(own, key=lambda t: sum(o.id in before[t.id] for o in own))
        lists.append([t.name.partition(":")[2] for t in inorder])
    return all(found == lists[0] for found in lists)


def _met(schedule: Schedule, task: int, begun: set[int], members: dict[str, set[int]]) -> bool:
    """Whether all partners of a task have come; a kernel has none."""
    own = schedule.tasks[task]
    if not own.communicator:
        return True
    step = own.name.partition(":")[2]
    partners = [
        t
        for t in schedule.tasks
        if t.communicator == own.communicator and t.name.partition(":")[2] == step
    ]
    came = {t.rank for t in partners if t.id in begun}
    return came == {t.rank for t in partners} == members[own.communicator]


def test_collectives_are_judged_as_by_running_them() -> None:
    safe = 0
    for seed in range(3_000):
        schedule = program(random.Random(seed))
        findings = [f for f in verify_schedule(schedule) if f.category != "limit"]
        assert (not findings) == runs_to_the_end(schedule), (seed, findings)
        safe += not findings
    assert 500 < safe < 2_500
