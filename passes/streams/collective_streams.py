"""Collectives beside a strategy: an engine of its own, whichever way the rest is placed.

A strategy places what one card computes. Collectives that the user did not place go, by kind, on
streams that it leaves free. Whoever places them, those that two cards have in common keep one
order, and all of a card's are issued in the order of the graph, which is the same on every card:
so no two cards can wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from gecompiler.ir.collective_ops import POINT_TO_POINT, SEND
from gecompiler.ir.errors import ScheduleError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Control, Task
from gecompiler.passes.scheduling.task_graph import TaskGraph, topological_order
from gecompiler.passes.streams.strategy import Placement

SYNC_TYPE = "collective_order"


@dataclass(frozen=True)
class Apart:
    """That collectives are placed beside the strategy, and on how many streams at most."""

    most: int | None = None
    """None for one of each kind."""


def kind_of(task: Task) -> str:
    """Which collectives share a stream: sends, receives, those of a communicator; else ``""``."""
    if task.kind != "collective":
        return ""
    if task.op_type in POINT_TO_POINT:
        return "sends" if task.op_type == SEND else "receives"
    return f"collectives over {task.communicator}"


@dataclass(frozen=True)
class CollectiveStreams:
    """Where the collectives of one task graph go.

    ``number`` gives the kind of each one that is placed here, by task name, counted from 0;
    ``order`` their places in the graph's order, those that the user placed included.
    """

    total: int
    """How many streams there are in all."""
    count: int
    """How many of them are left to collectives; 0 where they share those of the rest."""
    number: Mapping[str, int]
    order: Mapping[str, int]
    rings: bool = False
    """Whether cards send to each other in a ring, where no send may hold up what is received."""

    @staticmethod
    def of(tasks: TaskGraph, asked: Apart, placed: Collection[str], total: int, cores: int) -> (
        CollectiveStreams
    ):  # fmt: skip
        """For tasks in the graph's own order; ``placed`` are names that the user placed.

        Kinds whose kernels together want more vector cores than there are share streams: each
        would hold its cores while it waits for the others.
        """
        talk = [task for task in tasks.tasks if task.kind == "collective"]
        kinds: dict[str, int] = {}
        number: dict[str, int] = {}
        for task in talk:
            if task.name not in placed:
                number[task.name] = kinds.setdefault(kind_of(task), len(kinds))
        count = max(0, min(len(kinds), asked.most or len(kinds), total - 1))
        while count > 1 and _cores_at_once(talk, number, count) > cores:
            count -= 1
        order = {t.name: i for i, t in enumerate(talk)}
        rings = any(t.op_type in POINT_TO_POINT and t.communicator != "pp" for t in talk)
        return CollectiveStreams(total, count, number, order, rings)

    @property
    def room(self) -> int:
        """The streams that are left to the strategy."""
        return max(1, self.total - self.count)

    def settle(self, placement: Placement) -> Placement:
        """The placement with its collectives on their streams, all in one order."""
        tasks, stream = placement.graph.tasks, list(placement.stream)
        here = [t for t in range(len(tasks)) if tasks[t].name in self.number]
        reasons = dict(placement.reasons)
        rest = {s for t, s in enumerate(stream) if tasks[t].name not in self.number}
        free = [s for s in range(self.total) if s not in rest]
        if self.rings or not free:  # rather beside computing than sends before receives
            free += sorted(rest, reverse=True)
        for task in here:
            place = min(self.number[tasks[task].name], self.count - 1, len(free) - 1)
            stream[task] = free[place] if self.count else 0
            if self.count:
                reasons[task] = f"{kind_of(tasks[task])} have a stream of their own"
        placed = replace(placement, stream=tuple(stream), reasons=reasons)
        return self._in_order(placed)

    def _in_order(self, placement: Placement) -> Placement:
        """The same with collectives in the graph's order; UsageError where orders forbid it."""
        graph, order = placement.graph, self.order
        talk = [t for t in placement.sequence if graph.tasks[t].name in order]
        wanted = sorted(talk, key=lambda t: order[graph.tasks[t].name])
        if talk == wanted:
            return placement
        chain = tuple([Control(a, b, "graph", SYNC_TYPE) for a, b in pairwise(wanted)])
        rank = [0] * len(graph)
        for place, task in enumerate(placement.sequence):
            rank[task] = place
        try:
            chained = replace(graph, controls=(*graph.controls, *chain))
            return replace(placement, sequence=tuple(topological_order(chained, rank)))
        except ScheduleError as error:
            raise UsageError(
                "the orders demanded contradict the one in which all cards come to collectives: "
                + error.message.partition(": ")[2],
                where="add_sync_point",
                hint="leave out the sync point between these",
            ) from None


def in_order(tasks: TaskGraph, graph: Graph) -> TaskGraph:
    """The tasks with an order demanded of the collectives that meet the same cards."""
    last: dict[tuple[object, ...], int] = {}
    controls: list[Control] = []
    for task in tasks.tasks:
        if task.kind != "collective":
            continue
        key = _channel(graph, task)
        if key in last:
            controls.append(Control(last[key], task.id, "graph", SYNC_TYPE))
        last[key] = task.id
    return tasks.with_controls(controls)


def _channel(graph: Graph, task: Task) -> tuple[object, ...]:
    """With whom: a communicator, or the other card of a transfer and which way it goes."""
    if task.op_type not in POINT_TO_POINT:
        return (task.communicator,)
    op = graph.op(task.name)
    peer = int(op.attr("peer", 1)) % max(1, int(op.attr("group_size", 1)))
    return (task.communicator, task.op_type, peer)


def _cores_at_once(talk: list[Task], number: Mapping[str, int], count: int) -> int:
    """The vector cores that communication kernels want, if they meet; the user's each its own."""
    widest: dict[object, int] = {}
    for task in talk:
        kind: object = kind_of(task)
        if task.name in number:
            kind = min(number[task.name], count - 1)
        widest[kind] = max(widest.get(kind, 0), task.demand.vector_cores)
    return sum(widest.values())
