"""The schedule of what equal ranks run: computing on one stream, each kind of talk on another.

Collectives are an independent engine: they have streams of their own, so that what does not
wait for them goes on. All ranks take them in the order of the graph, which is the same on every
rank; hence no two ranks can wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gecompiler.ir.collective_ops import RECV, SEND
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.target import Target
from gecompiler.passes.memory.plan import MemoryPlan, plan_memory
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.evaluation import Synced, schedule_of, synchronise
from gecompiler.passes.streams.physical import physical_streams
from gecompiler.passes.streams.strategy import Placement, in_topological_order
from gecompiler.passes.streams.user_priority import with_core_limits

STRATEGY = "collectives_apart"

Lane = Callable[[str], int]
"""The stream on which an op computes, by its name, where there are several."""


@dataclass(frozen=True)
class TemplateSchedule:
    """One rank's schedule, whose communicators are still named by axes of the mesh."""

    graph: Graph
    tasks: TaskGraph
    schedule: Schedule
    synced: Synced
    memory: MemoryPlan | None
    """None where only the time is asked for."""


def schedule_template(
    graph: Graph,
    target: Target,
    *,
    streams: int | None = None,
    memory: bool = True,
    lane: Lane | None = None,
) -> TemplateSchedule:
    """Schedules one rank on at most ``streams`` streams (default: as many as the device has).

    ``lane``: computing is on several streams, micro-batches side by side.

    Where memory could only be used again with more orders than the data demands, these are
    added. Kinds of talk whose kernels together want more vector cores than there are share
    streams: each would hold its cores while it waits for the others. ModelError for sizes that
    are not bound, ScheduleError for too few events.
    """
    tasks = with_core_limits(lower(graph, target), graph, target)
    most = min(streams or target.limits.max_streams, target.limits.max_streams)
    lanes = _lanes(tasks, lane)
    placement = collectives_apart(tasks, most, lanes)
    least = len(set(lanes)) + 1
    while placement.used > least and _cores_at_once(placement) > target.limits.vector_cores:
        placement = collectives_apart(tasks, placement.used - 1, lanes)
    synced = synchronise(placement, target)
    plan: MemoryPlan | None = None
    if memory:
        plan = plan_memory(placement, synced.plan.clock, synced.where)
        if plan.arena_bytes > target.limits.memory_bytes and synced.where.lanes > 1:
            tight = plan_memory(placement, synced.plan.clock, synced.where, ordered=False)
            if tight.arena_bytes < plan.arena_bytes:
                plan, synced = tight, synchronise(placement, target, tight.hazards)
    schedule = schedule_of(synced, target, STRATEGY, plan)
    if memory:
        schedule = replace(schedule, physical_streams=physical_streams(schedule))
    return TemplateSchedule(graph, tasks, schedule, synced, plan)


def collectives_apart(
    graph: TaskGraph, streams: int, lanes: Sequence[int] | None = None
) -> Placement:
    """Computing on stream 0, then a stream for each kind of talk while there are any left.

    Kinds are sends, receives, and the collectives of each communicator, in order of their first
    task; those that are left over share the last stream. ``lanes``: the stream of each task that
    computes, of which at least one less are used than there are streams.
    """
    place = lanes or (0,) * len(graph)
    computing = min(max(place, default=0) + 1, max(1, streams - 1))
    number: dict[str, int] = {}
    found: list[int] = []
    reasons: dict[int, str] = {}
    for task in graph.tasks:
        kind = _kind(task)
        if kind and kind not in number:
            number[kind] = len(number) + computing
        own = place[task.id] % computing
        found.append(min(number[kind], max(0, streams - 1)) if kind else own)
        if kind:
            reasons[task.id] = f"{kind} have a stream of their own"
        elif computing > 1:
            reasons[task.id] = f"micro-batches side by side, stream {own}"
    return in_topological_order(graph, tuple(found), reasons)


def _lanes(graph: TaskGraph, lane: Lane | None) -> tuple[int, ...]:
    if lane is None:
        return (0,) * len(graph)
    return tuple(0 if _kind(task) else lane(task.name) for task in graph.tasks)


def _cores_at_once(placement: Placement) -> int:
    """The vector cores that communication kernels of all streams want, if they meet."""
    widest: dict[int, int] = {}
    for task, stream in zip(placement.graph.tasks, placement.stream, strict=True):
        if task.kind == "collective":
            widest[stream] = max(widest.get(stream, 0), task.demand.vector_cores)
    return sum(widest.values())


def _kind(task: Task) -> str:
    if task.kind != "collective":
        return ""
    if task.op_type in (SEND, RECV):
        return "sends" if task.op_type == SEND else "receives"
    return f"collectives over {task.communicator}"
