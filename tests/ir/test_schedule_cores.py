"""Communication kernels that may run at once and hold more vector cores than there are."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain, combinations

import networkx as nx
import pytest

from gecompiler.ir.schedule import Communicator, Demand, Event, Limits, Schedule, Task
from gecompiler.ir.schedule_verify import verify_schedule

LIMITS = Limits(8, 64, 1000, 1 << 20, 24, 48)


def reduce(i: int, stream: int, order: int, cores: int, group: str = "") -> Task:
    return Task(
        i,
        f"reduce{i}",
        "collective",
        stream,
        order,
        demand=Demand(vector_cores=cores, vector_us=1.0),
        communicator=group,
    )


def schedule(tasks: list[Task], events: list[tuple[int, int]] = ()) -> Schedule:
    marks = tuple(Event(a, b, "control", event_id=i) for i, (a, b) in enumerate(events))
    groups = tuple(Communicator(n, (0,)) for n in sorted({t.communicator for t in tasks} - {""}))
    return Schedule("m", "d", "hand", tuple(tasks), marks, (), LIMITS, communicators=groups)


def test_two_that_fit_one_by_one_and_not_together() -> None:
    wide = schedule([reduce(0, 0, 0, 32), reduce(1, 1, 0, 24)])
    (found,) = verify_schedule(wide)
    assert (found.code, found.category) == ("core_oversubscription", "deadlock")
    assert found.tasks == ("reduce0", "reduce1")
    assert "32 + 24 = 56 vector cores, the device has 48" in found.message
    assert found.fix.startswith('add_sync_point("reduce0", "reduce1", "control")')


@pytest.mark.parametrize(
    ("tasks", "events"),
    [
        ([reduce(0, 0, 0, 32), reduce(1, 0, 1, 24)], []),  # one stream
        ([reduce(0, 0, 0, 32), reduce(1, 1, 0, 24)], [(0, 1)]),  # an event between them
        ([reduce(0, 0, 0, 24), reduce(1, 1, 0, 24)], []),  # both fit
        ([reduce(0, 0, 0, 32), replace(reduce(1, 1, 0, 24), kind="kernel")], []),  # no waiting
    ],
)
def test_what_is_safe(tasks: list[Task], events: list[tuple[int, int]]) -> None:
    assert verify_schedule(schedule(tasks, events)) == []


def test_three_that_fit_in_pairs() -> None:
    (found,) = verify_schedule(schedule([reduce(i, i, 0, 20) for i in range(3)]))
    assert found.tasks == ("reduce0", "reduce1", "reduce2")


def test_other_communicators_hold_cores_as_well() -> None:
    tasks = [reduce(0, 0, 0, 32, "tp"), reduce(1, 1, 0, 24, "dp")]
    assert [f.code for f in verify_schedule(schedule(tasks))] == ["core_oversubscription"]


def test_as_by_trying_every_group() -> None:
    seen = {True: 0, False: 0}
    for seed in range(600):
        rng = random.Random(seed)
        streams = rng.randint(2, 4)
        tasks, places = [], [0] * streams
        for i in range(rng.randint(2, 9)):
            s = rng.randrange(streams)
            tasks.append(reduce(i, s, places[s], rng.choice((8, 16, 20, 24, 40))))
            places[s] += 1
        pairs = [(a, b) for a, b in combinations(range(len(tasks)), 2) if rng.random() < 0.15]
        made = schedule(tasks, [p for p in pairs if tasks[p[0]].stream != tasks[p[1]].stream])
        net = nx.DiGraph((e.producer, e.consumer) for e in made.events)
        net.add_nodes_from(range(len(tasks)))
        for queue in made.streams.values():
            net.add_edges_from((a.id, b.id) for a, b in combinations(queue, 2))
        ahead = {t: nx.descendants(net, t) for t in net}
        groups = chain.from_iterable(combinations(range(len(tasks)), n) for n in (2, 3, 4))
        wide = any(
            sum(tasks[t].demand.vector_cores for t in group) > LIMITS.vector_cores
            and not any(b in ahead[a] or a in ahead[b] for a, b in combinations(group, 2))
            for group in groups
        )
        assert bool(verify_schedule(made)) == wide, seed
        seen[wide] += 1
    assert min(seen.values()) > 100


def test_a_thousand_unordered_kernels_on_eight_streams() -> None:
    tasks = [reduce(i, i % 8, i // 8, 6) for i in range(4000)]
    assert verify_schedule(schedule(tasks)) == []
