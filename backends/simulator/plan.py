"""A schedule made ready for simulation: indexes instead of names, phases instead of demands.

Times are nanoseconds as floats from here on, so that whole nanoseconds add up exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gecompiler.backends.device import CORE_RESOURCES, Device
from gecompiler.backends.simulator.fluid import LinkRate, phases
from gecompiler.backends.simulator.fluid_share import SCALE, UNIT, Use
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Demand, Schedule, Task

NS = 1e3
"""Nanoseconds in a microsecond."""

FIXED, PEERS = -1, -2
"""What binds a task beside the resources: its start-up, and the other ranks of a collective."""


class Step(NamedTuple):
    """A phase with its resources as indexes; ``bound`` is one of them."""

    ns: float
    use: Use
    bound: int


class Work(NamedTuple):
    """What a task does: nothing shared for ``fixed_ns``, then its steps."""

    fixed_ns: float
    steps: tuple[Step, ...]
    alone_ns: float


@dataclass(slots=True)
class Plan:
    """Everything the engine needs, by task index."""

    resources: list[str] = field(default_factory=list)
    capacities: list[tuple[float, str]] = field(default_factory=list)
    domains: list[list[int]] = field(default_factory=list)
    """Resources that are shared together, directly or through a link: each rank, or several."""
    domain_of: list[int] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    stream_of: list[int] = field(default_factory=list)
    queues: list[list[int]] = field(default_factory=list)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    """How many producers each task waits for by events."""
    issued: list[float] = field(default_factory=list)
    """When the host has issued each task; empty when the graph is sunk."""
    party_of: dict[int, int] = field(default_factory=dict)
    parties: list[tuple[int, ...]] = field(default_factory=list)
    """The parts of one collective, which go on together once all have started."""
    joint: dict[int, Step] = field(default_factory=dict)
    """By party, what its parts do as one: their progress is that of the slowest link."""


def make_plan(
    schedule: Schedule, device: Device, *, host: bool, link_rate: LinkRate | None = None
) -> Plan:
    """Raises ScheduleError for ids, demands or events that make no sense. O(tasks + events).

    ``link_rate`` gives the bandwidth of the links of a topology; otherwise the device does.
    """
    plan = Plan()
    rate = link_rate or device.link_bytes_per_us
    tasks = schedule.tasks
    for i, task in enumerate(tasks):
        if task.id != i:
            raise ScheduleError(
                f"task {task.name!r} has id {task.id}, expected {i}", where=schedule.model
            )
    _parties(plan, schedule)
    _resources(plan, tasks, device, rate)
    _works(plan, tasks, device, rate)
    _join(plan, tasks)
    plan.stream_of = [0] * len(tasks)
    for s, queue in enumerate(schedule.streams.values()):
        plan.queues.append([t.id for t in queue])
        for task in queue:
            plan.stream_of[task.id] = s
    _events(plan, schedule)
    if host:
        _issue(plan, tasks, device)
    return plan


def _resources(plan: Plan, tasks: tuple[Task, ...], device: Device, link_rate: LinkRate) -> None:
    """Names all resources, and finds which ranks are tied together by links and collectives."""
    ranks = sorted({t.rank for t in tasks})
    links: dict[str, dict[int, None]] = {}
    for task in tasks:
        for link, _ in task.demand.link_bytes:
            links.setdefault(link, {})[task.rank] = None
    groups = list(links.values())
    if len(ranks) > 1:
        groups += [dict.fromkeys(tasks[t].rank for t in members) for members in plan.parties]
    number = _tied(ranks, groups)
    plan.domains = [[] for _ in set(number.values())]
    capacity = device.capacities()
    for rank in ranks:
        for name in CORE_RESOURCES:
            plan.domains[number[rank]].append(len(plan.resources))
            plan.resources.append(f"{rank}:{name}" if len(ranks) > 1 else name)
            unit = "cores" if name in ("cube", "vector") else "bytes/us"
            plan.capacities.append((capacity[name], unit))
    for link in sorted(links):
        plan.domains[number[next(iter(links[link]))]].append(len(plan.resources))
        plan.resources.append(link)
        plan.capacities.append((link_rate(link), "bytes/us"))
    plan.domain_of = [number[t.rank] for t in tasks]


def _tied(ranks: list[int], groups: list[dict[int, None]]) -> dict[int, int]:
    """Numbers the ranks so that those in one group, directly or by others, have one number."""
    leader = {rank: rank for rank in ranks}

    def root(rank: int) -> int:
        while leader[rank] != rank:
            leader[rank] = leader[leader[rank]]
            rank = leader[rank]
        return rank

    for first, *others in groups:
        for rank in others:
            leader[root(rank)] = root(first)
    number: dict[int, int] = {}
    return {rank: number.setdefault(root(rank), len(number)) for rank in ranks}


def _works(plan: Plan, tasks: tuple[Task, ...], device: Device, link_rate: LinkRate) -> None:
    several = len({t.rank for t in tasks}) > 1
    index = {name: i for i, name in enumerate(plan.resources)}
    local = {r: i for names in plan.domains for i, r in enumerate(names)}
    cores: dict[int, dict[str, int]] = {}
    known: dict[tuple[Demand, int], Work] = {}
    for task in tasks:
        demand, rank = task.demand, task.rank
        work = known.get((demand, rank))
        if work is None:
            _check(task)
            if rank not in cores:
                cores[rank] = {
                    n: local[index[f"{rank}:{n}" if several else n]] for n in CORE_RESOURCES
                }
            names = cores[rank]
            if demand.link_bytes:
                names = names | {n: local[index[n]] for n, _ in demand.link_bytes}
            work = known[demand, rank] = _work(demand, device, names, link_rate)
        plan.work.append(work)


def _work(demand: Demand, device: Device, names: dict[str, int], link_rate: LinkRate) -> Work:
    fixed = demand.fixed_us * NS
    alone = fixed
    steps: list[Step] = []
    seen: tuple[tuple[str, float], ...] = ()
    shares: Use = ()
    for us, use, bound in phases(device, demand, link_rate):
        if use is not seen:
            # shares as `exact` makes them
            seen = use
            shares = tuple([(names[r], round(part * SCALE) * UNIT) for r, part in use])
        steps.append(Step(us * NS, shares, names[bound]))
        alone += us * NS
    return Work(fixed, tuple(steps), alone)


def _join(plan: Plan, tasks: tuple[Task, ...]) -> None:
    """Makes one step of the parts of each collective that was costed as a whole.

    It lasts as long as the longest of them and uses what all of them use.
    """
    for party, members in enumerate(plan.parties):
        works = [plan.work[t] for t in members]
        if not all(tasks[t].demand.least_us > 0 for t in members):
            continue
        slowest = max((w.steps[0] for w in works), key=lambda step: step.ns)
        use: dict[int, float] = {}
        for work in works:
            step = work.steps[0]
            for resource, share in step.use:
                use[resource] = use.get(resource, 0.0) + share * (step.ns / slowest.ns)
        shares = tuple([(r, round(share * SCALE) * UNIT) for r, share in use.items()])
        plan.joint[party] = Step(slowest.ns, shares, slowest.bound)
        for t, work in zip(members, works, strict=True):
            plan.work[t] = work._replace(alone_ns=work.fixed_ns + slowest.ns)


def _check(task: Task) -> None:
    d, most = task.demand, math.inf
    sane = (
        0 <= d.load_bytes < most
        and 0 <= d.store_bytes < most
        and 0 <= d.l2_bytes < most
        and 0 <= d.cube_us < most
        and 0 <= d.vector_us < most
        and 0 <= d.fixed_us < most
        and 0 <= d.least_us < most
        and all(0 <= amount < most for _, amount in d.link_bytes)
    )
    if not sane:
        raise ScheduleError(f"demand of task {task.name!r} is negative or not finite: {d}")


def _events(plan: Plan, schedule: Schedule) -> None:
    count = len(schedule.tasks)
    plan.waits = [0] * count
    seen: set[tuple[int, int]] = set()
    for event in schedule.events:
        pair = (event.producer, event.consumer)
        if not all(0 <= end < count for end in pair):
            raise ScheduleError(
                f"an event joins tasks {pair[0]} and {pair[1]}, but there are {count} tasks",
                where=schedule.model,
            )
        if pair in seen:
            continue
        seen.add(pair)
        plan.consumers.setdefault(pair[0], []).append(pair[1])
        plan.waits[pair[1]] += 1


def _parties(plan: Plan, schedule: Schedule) -> None:
    """The k-th collective of a communicator on every rank of it makes one party."""
    parts: dict[tuple[str, int], list[int]] = {}
    for task in schedule.tasks:
        if task.kind == "collective" and task.communicator:
            parts.setdefault((task.communicator, task.rank), []).append(task.id)
    for row in parts.values():
        if len({schedule.tasks[t].stream for t in row}) == 1:
            row.sort(key=lambda t: schedule.tasks[t].order)
    for communicator in schedule.communicators:
        rows = [parts.get((communicator.name, rank), []) for rank in communicator.ranks]
        if len({len(row) for row in rows}) > 1:
            counts = ", ".join(
                f"rank {k}: {len(row)}" for k, row in zip(communicator.ranks, rows, strict=True)
            )
            raise ScheduleError(
                f"ranks of communicator {communicator.name!r} take part in different numbers of "
                f"collectives ({counts}); the rank with more would wait for ever",
                where=schedule.model,
            )
        for members in zip(*rows, strict=True):
            if len(members) > 1:
                plan.party_of.update(dict.fromkeys(members, len(plan.parties)))
                plan.parties.append(members)


def _issue(plan: Plan, tasks: tuple[Task, ...], device: Device) -> None:
    """A serial host thread a rank issues tasks by id, each with its waits before, record after."""
    now = dict.fromkeys((task.rank for task in tasks), 0.0)
    for i, task in enumerate(tasks):
        issued = (
            now[task.rank] + (device.host_launch_us + plan.waits[i] * device.host_event_us) * NS
        )
        plan.issued.append(issued)
        now[task.rank] = issued + (device.host_event_us * NS if i in plan.consumers else 0.0)
