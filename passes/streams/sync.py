"""The fewest syncs: events that enforce the demanded orders and nothing else.

For a placement the answer is unique: the edges of the transitive reduction of all orders and
the stream order together, less the stream order. With vector clocks it takes O((V + E) * S):
tasks are taken in the placement's sequence; of each other stream only the latest producer
matters, and the latest of these first, since it may know that the others are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gecompiler.ir.schedule import Event, EventKind, Task
from gecompiler.passes.scheduling.task_graph import Dep
from gecompiler.passes.streams.strategy import Placement

_STRENGTH: dict[EventKind, int] = {"data": 0, "buffer": 1, "control": 2, "user": 3}


@dataclass(frozen=True)
class Positions:
    """Where each task stands: its lane (dense from 0), and its place there and in sequence."""

    lane: tuple[int, ...]
    order: tuple[int, ...]
    rank: tuple[int, ...]
    lanes: int

    @staticmethod
    def of(placement: Placement) -> Positions:
        """The positions that a placement gives."""
        ids = {s: i for i, s in enumerate(sorted(set(placement.stream)))}
        lane = tuple(ids[s] for s in placement.stream)
        order = [0] * len(lane)
        rank = [0] * len(lane)
        count = [0] * len(ids)
        for i, task in enumerate(placement.sequence):
            order[task], rank[task] = count[lane[task]], i
            count[lane[task]] += 1
        return Positions(lane, tuple(order), tuple(rank), len(ids))


@dataclass(frozen=True)
class SyncPlan:
    """The events kept, and what the same orders would have cost otherwise.

    ``clock[t][lane]`` is how many tasks of that lane are done before task t starts (t itself
    not counted), by stream order and events.
    """

    events: tuple[Event, ...]
    clock: tuple[tuple[int, ...], ...]
    cross_stream_dependencies: int
    ge_rule_events: int


def plan_syncs(placement: Placement, deps: Sequence[Dep], where: Positions) -> SyncPlan:
    """The fewest events that enforce ``deps``; producers come first in the placement's sequence."""
    lane, order, rank = where.lane, where.order, where.rank
    incoming: dict[int, dict[int, None]] = {}
    for dep in deps:
        if lane[dep.producer] != lane[dep.consumer]:
            incoming.setdefault(dep.consumer, {})[dep.producer] = None
    pairs: list[tuple[int, int]] = []
    clock: list[tuple[int, ...]] = [()] * len(lane)
    current = [[0] * where.lanes for _ in range(where.lanes)]
    for task in placement.sequence:
        own = lane[task]
        now = current[own]
        for producer in sorted(incoming.get(task, ()), key=rank.__getitem__, reverse=True):
            other = lane[producer]
            if now[other] > order[producer]:
                continue
            pairs.append((producer, task))
            known = clock[producer]
            for i in range(where.lanes):
                now[i] = max(now[i], known[i])
            now[other] = order[producer] + 1
        clock[task] = tuple(now)
        now[own] = order[task] + 1
    crossing = [(p, c) for c, producers in incoming.items() for p in producers]
    return SyncPlan(
        _events(pairs, deps, placement.graph.tasks),
        tuple(clock),
        len(crossing),
        ge_rule_count(crossing, where),
    )


def _events(
    pairs: Sequence[tuple[int, int]], deps: Sequence[Dep], tasks: Sequence[Task]
) -> tuple[Event, ...]:
    because: dict[tuple[int, int], list[Dep]] = {pair: [] for pair in pairs}
    for dep in deps:
        found = because.get((dep.producer, dep.consumer))
        if found is not None:
            found.append(dep)
    return tuple(
        Event(
            producer,
            consumer,
            min((d.kind for d in why), key=_STRENGTH.__getitem__),
            tuple(dict.fromkeys(d.tensor for d in why if d.tensor)),
            producer_op=_op(tasks[producer]),
            consumer_op=_op(tasks[consumer]),
        )
        for (producer, consumer), why in because.items()
    )


def _op(task: Task) -> str:
    """The op that the task is there for."""
    return task.name if task.name in task.ops or not task.ops else task.ops[0]


def ge_rule_count(crossing: Iterable[tuple[int, int]], where: Positions) -> int:
    """How many events the graph engine's clean-up would keep of these (producer, consumer).

    R1: of one sender's events to one stream only the first receiver's stays. R2: of one
    receiver's events from one stream only the last sender's stays. Each once, in this order
    (CANN GE, ``StreamUtils::OptimizeBySendEvents`` and ``OptimizeByRecvEvents``).
    """
    first: dict[tuple[int, int], int] = {}
    for producer, consumer in crossing:
        key = (producer, where.lane[consumer])
        if key not in first or where.order[consumer] < where.order[first[key]]:
            first[key] = consumer
    last = {(consumer, where.lane[producer]) for (producer, _), consumer in first.items()}
    return len(last)
