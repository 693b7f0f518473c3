"""The user's sync points: orders demanded between named ops that data does not imply.

Both names may stand for many ops, one or more a layer. In the graph's order these form runs of
producers, each followed by a run of consumers; every consumer of a run waits for all producers
of the run just before it. So a point between "FlashAttention" and "MLP" orders each layer's
attention before that layer's MLP, and not before the next one's. Where data implies all of that,
and each run of producers follows a run of consumers that data lets wait for it, these are meant:
"MLP up" before "MLP gate" is within each layer, in whichever order the graph has the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Control
from gecompiler.passes.reachability import Reachability
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.naming import NameTable

NO_PARTS: Mapping[str, Sequence[str]] = MappingProxyType({})

PartsOf = Callable[[str], Sequence[Sequence[str]]]
"""The ops that a name stands for in each micro-batch, what all of them share included."""

MOST_ORDERS = 20_000
"""A point that stands for more orders than this is refused: its names are too wide."""


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """``consumer`` starts after ``producer`` ended; names match as in `naming`."""

    producer: str
    consumer: str
    sync_type: str = "data_ready"

    def __str__(self) -> str:
        return f'add_sync_point("{self.producer}", "{self.consumer}", "{self.sync_type}")'


@dataclass(frozen=True)
class SyncPoints:
    """The task graph with the points that say something new, and those that do not."""

    graph: TaskGraph
    kept: tuple[SyncPoint, ...]
    redundant: tuple[SyncPoint, ...]


def apply_sync_points(
    tasks: TaskGraph,
    graph: Graph,
    points: Sequence[SyncPoint],
    diagnostics: Diagnostics,
    parts: Mapping[str, Sequence[str]] = NO_PARTS,
    parts_of: PartsOf | None = None,
) -> SyncPoints:
    """Adds the orders that ``points`` demand.

    Names are those of ``graph``; where ``tasks`` are of its micro-batches, ``parts`` names the
    parts of each op, and a point holds within each micro-batch. ``parts_of`` finds them in
    another way, where there is one. A point that data and control
    edges imply already is kept out, with a warning. UsageError for a name that stands for
    nothing; ScheduleError for points that would make a cycle.
    """
    if not points:
        return SyncPoints(tasks, (), ())
    finder = parts_of or _finder(NameTable(graph), parts)
    reach = Reachability(tasks.preds)
    controls: dict[tuple[int, int], Control] = {}
    kept: list[SyncPoint] = []
    redundant: list[SyncPoint] = []
    for point in points:
        producers = _tasks_of(point.producer, point, finder, tasks)
        consumers = _tasks_of(point.consumer, point, finder, tasks)
        each = zip(producers, consumers, strict=True)
        pairs = list(dict.fromkeys(pair for two in each for pair in _pairs(*two, reach)))
        fresh = [p for p in pairs if p not in controls and not reach.reaches(*p)]
        inside = not pairs and _fused_into_one(point, producers, consumers, graph)
        if not pairs and not inside:
            _refuse(point, producers[0], consumers[0], reach, tasks)
        if not fresh:
            redundant.append(point)
            why = "within one fused op" if inside else "implied by the data flow"
            diagnostics.warn(
                "redundant-sync-point",
                f"{point} is {why} and adds nothing",
                "leave it out; the schedule orders the two anyway",
            )
            continue
        kept.append(point)
        controls.update((p, Control(*p, "user", point.sync_type)) for p in fresh)
    return SyncPoints(tasks.with_controls(tuple(controls.values())), tuple(kept), tuple(redundant))


def _finder(table: NameTable, parts: Mapping[str, Sequence[str]]) -> PartsOf:
    count = max(map(len, parts.values()), default=1)

    def find(name: str) -> list[list[str]]:
        _, ops = table.find(name)
        return [
            [parts[op.name][part] if op.name in parts else op.name for op in ops]
            for part in range(count)
        ]

    return find


def _tasks_of(name: str, point: SyncPoint, finder: PartsOf, tasks: TaskGraph) -> list[list[int]]:
    """The tasks that a name stands for in each micro-batch, what all of them share included."""
    try:
        parts = finder(name)
    except UsageError as error:
        raise UsageError(error.message, where=f"{point}: {name!r}", hint=error.hint) from None
    found = [sorted({tasks.riders[n] for n in names if n in tasks.riders}) for names in parts]
    if not any(found):
        raise UsageError(f"no op of {name!r} becomes a task of its own", where=str(point))
    return found


def _fused_into_one(
    point: SyncPoint, producers: list[list[int]], consumers: list[list[int]], graph: Graph
) -> bool:
    """Whether both names are of ops that are no more, and that became part of the same ones."""
    gone = point.producer not in graph or point.consumer not in graph
    return gone and point.producer != point.consumer and producers == consumers


def _pairs(
    producers: list[int], consumers: list[int], reach: Reachability
) -> list[tuple[int, int]]:
    """Every consumer with the producers of the run before it; see the module's docstring."""
    forward = list(_runs(producers, consumers))
    found = _orders(forward, reach)
    if any(not reach.reaches(*pair) for pair in found):
        return found
    backward = [(before, after) for after, before in _runs(consumers, producers)]
    if len(backward) <= len(forward):
        return found
    if any(reach.reaches(c, p) for before, after in backward for c in after for p in before):
        return found
    return _orders(backward, reach)


def _orders(
    runs: Sequence[tuple[list[int], list[int]]], reach: Reachability
) -> list[tuple[int, int]]:
    """(producer, consumer) of each run, those that others imply left out."""
    found: list[tuple[int, int]] = []
    for before, after in runs:
        left, right = reach.maximal(before), reach.minimal(after)
        if len(found) + len(left) * len(right) > MOST_ORDERS:
            raise UsageError(
                f"a sync point stands for more than {MOST_ORDERS} orders between tasks",
                where="add_sync_point",
                hint="use names that stand for fewer ops",
            )
        found += [(p, c) for c in right for p in left]
    return found


def _runs(producers: list[int], consumers: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """(producers, consumers) that follow each other; a task that is both ends and starts one."""
    makes, takes = set(producers), set(consumers)
    before: list[int] = []
    after: list[int] = []
    for task in sorted(makes | takes):
        if task in takes and before:
            after.append(task)
        if task in makes:
            if after:
                yield before, after
                before, after = [], []
            before.append(task)
    if before and after:
        yield before, after


def _refuse(
    point: SyncPoint,
    producers: list[int],
    consumers: list[int],
    reach: Reachability,
    tasks: TaskGraph,
) -> None:
    path = next((w for c in consumers for p in producers if (w := reach.path(c, p))), ())
    if not path:
        raise UsageError("both names stand for the same task", where=str(point))
    raise UsageError(
        "it would make a cycle: the consumer runs before the producer, "
        + " -> ".join(repr(tasks.tasks[t].name) for t in path),
        where=str(point),
        hint="exchange the two names, or leave the point out",
    )
