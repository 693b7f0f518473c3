"""A placement with its syncs, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gecompiler.ir.schedule import Schedule, SyncPrimitive
from gecompiler.ir.target import Evaluator, Target
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.memory.plan import MemoryPlan
from gecompiler.passes.scheduling.task_graph import Dep
from gecompiler.passes.streams.event_ids import (
    EventIds,
    allocate_event_ids,
    fewest_event_ids,
    require_event_ids,
)
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.sync import Positions, SyncPlan, plan_syncs


@dataclass(frozen=True)
class Synced:
    """A placement and the fewest events that make it correct."""

    placement: Placement
    where: Positions
    plan: SyncPlan
    ids: EventIds
    primitive: SyncPrimitive = "event"
    added: tuple[Dep, ...] = ()
    """Orders beyond those of the task graph that the events enforce."""


@dataclass(frozen=True)
class Evaluated:
    """A candidate that was simulated."""

    strategy: str
    synced: Synced
    timeline: Timeline

    @property
    def placement(self) -> Placement:
        """Where its tasks are."""
        return self.synced.placement

    @property
    def makespan_ns(self) -> int:
        """Its simulated time."""
        return self.timeline.makespan_ns


MOST_EXACT = 4096
"""With more records than this ids are given greedily also where they run out."""


def synchronise(
    placement: Placement,
    target: Target,
    hazards: Sequence[Dep] = (),
    primitive: SyncPrimitive = "event",
) -> Synced:
    """The fewest events for the placement's dependencies and ``hazards``, with their ids.

    ScheduleError when the device has not enough ids.
    """
    graph = placement.graph
    where = Positions.of(placement)
    plan = plan_syncs(placement, (*graph.deps, *hazards), where)
    ids = allocate_event_ids(plan.events, plan.clock, where, primitive)
    limits = target.limits
    available = limits.max_notifies if primitive == "notify" else limits.max_events
    if ids.count > available and len(plan.events) <= MOST_EXACT:
        ids = fewest_event_ids(plan.events, plan.clock, where, primitive)
    require_event_ids(ids.count, limits, placement.used, graph.name, primitive)
    return Synced(placement, where, plan, ids, primitive, tuple(hazards))


def schedule_of(
    synced: Synced, target: Target, strategy: str, memory: MemoryPlan | None = None
) -> Schedule:
    """The Schedule record; without a memory plan it has no buffers (enough to simulate)."""
    placement = synced.placement
    graph = placement.graph
    places = zip(graph.tasks, placement.stream, synced.where.order, strict=True)
    tasks = tuple(
        task if (stream, order) == (0, task.order) else replace(task, stream=stream, order=order)
        for task, stream, order in places
    )
    return Schedule(
        model=graph.name,
        device=target.name,
        strategy=strategy,
        tasks=tasks,
        events=synced.ids.events,
        buffers=memory.buffers if memory is not None else (),
        limits=target.limits,
        controls=graph.controls,
        states=graph.states,
        arena_bytes=memory.arena_bytes if memory is not None else 0,
        sync_primitive=synced.primitive,
    )


def evaluate(
    strategy: str,
    placement: Placement,
    target: Target,
    evaluator: Evaluator,
    primitive: SyncPrimitive = "event",
) -> Evaluated:
    """Syncs and simulates a placement. ScheduleError when the device has not enough ids."""
    synced = synchronise(placement, target, primitive=primitive)
    return Evaluated(strategy, synced, evaluator(schedule_of(synced, target, strategy)))
