"""From a bound graph to a schedule: tasks, streams, syncs, addresses, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Schedule, SyncPrimitive
from gecompiler.ir.target import Evaluator, Target
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.memory.advice import report_memory
from gecompiler.passes.memory.plan import MemoryPlan, plan_memory
from gecompiler.passes.scheduling.placement_log import Decided, log_choice, log_placement
from gecompiler.passes.scheduling.schedule_advice import warn_if_in_vain
from gecompiler.passes.scheduling.schedule_records import (
    CandidateRow,
    ScheduleOptions,
    ScheduleResult,
    UserControl,
)
from gecompiler.passes.scheduling.schedule_search import Search, Tried
from gecompiler.passes.scheduling.schedule_variant import Variants
from gecompiler.passes.scheduling.steady_period import steady_period_ns
from gecompiler.passes.streams.evaluation import Synced, schedule_of, synchronise
from gecompiler.passes.streams.labels import label_streams, warn_of_shared_streams
from gecompiler.passes.streams.physical import physical_streams
from gecompiler.passes.streams.registry import streams_asked
from gecompiler.passes.streams.strategy import StrategyContext
from gecompiler.passes.streams.sync_points import SyncPoint
from gecompiler.passes.streams.user_streams import stream_count, user_streams
from gecompiler.passes.streams.wait_merging import merge_waits

__all__ = [
    "CandidateRow",
    "ScheduleOptions",
    "ScheduleResult",
    "SyncPoint",
    "UserControl",
    "build_schedule",
]


def build_schedule(
    graph: Graph,
    target: Target,
    evaluator: Evaluator,
    options: ScheduleOptions,
    user: UserControl,
    diagnostics: Diagnostics,
) -> ScheduleResult:
    """Schedules a graph whose sizes are all bound.

    Under ``auto`` without user assignments ``lower_bound_us <= best_found_us <= makespan_us <=
    single_stream_us``. ModelError for unbound sizes, UsageError for what the user got wrong,
    ScheduleError for what the device cannot hold (memory only with ``strict_memory``).
    """
    enabled = options.enable_parallel
    fixed = user_streams(
        graph,
        target,
        user.assignment,
        user.strategy,
        diagnostics,
        enabled=enabled,
        seconds=user.strategy_seconds,
    )
    wanted = options.num_streams or streams_asked(options.strategy)
    streams = stream_count(target, wanted, fixed, diagnostics, enabled=enabled)
    variants = Variants(
        graph, target, fixed, user.sync_points, diagnostics, options.samples, user.parts_of
    )
    if user.collectives is not None:
        total = max(streams, options.num_streams or enabled * target.limits.max_streams)
        most = min(total, target.limits.max_streams)
        variants = replace(variants, apart=user.collectives, streams=most)
        streams = min(streams, variants.room)
    labels = label_streams(graph, options.strategy, fixed, streams, enabled=enabled)
    if labels:
        variants = replace(variants, fixed={**fixed, **labels})
    fixed = dict(variants.fixed)
    context = StrategyContext(
        target,
        streams,
        overlap_ratio=options.overlap_ratio,
        pipeline_depth=options.pipeline_depth,
        engine_streams=options.engine_streams,
        memory_priority=options.memory_priority,
        solver_seconds=options.solver_seconds,
        seed=options.seed,
    )
    search = Search(variants, context, evaluator, options.sync_primitive)
    winner, finished = _taken(search, options, free=not fixed)
    strict = options.strict_memory
    report_memory(finished.memory, target, graph.name, diagnostics, strict=strict)
    result = _result(finished, winner, search, options)
    warn_if_in_vain(result, bool(fixed), diagnostics)
    decided = _decided(winner, finished)
    result = replace(result, decided=decided)
    warn_of_shared_streams(finished.synced.placement, decided.labels, diagnostics)
    log_choice(options.strategy, result)
    log_placement(decided)
    return result


@dataclass(frozen=True)
class _Finished:
    """A schedule with its addresses, and its timeline."""

    schedule: Schedule
    timeline: Timeline
    synced: Synced
    memory: MemoryPlan


def _taken(search: Search, options: ScheduleOptions, *, free: bool) -> tuple[Tried, _Finished]:
    """The winner, finished; under ``auto`` one stream where that does better in the end."""
    target, evaluator, primitive = search.context.target, search.evaluator, options.sync_primitive
    winner = search.run(options)
    if options.merge_waits:
        winner = replace(winner, evaluated=merge_waits(winner.evaluated, target, evaluator))
        search.found.append(winner)
    try:
        finished = _finish(winner, target, evaluator, primitive)
    except ScheduleError:  # too few notifies, of which one stream needs none
        if options.strategy != "auto" or not free:
            raise
        return search.single, _finish(search.single, target, evaluator, primitive)
    slower = finished.timeline.makespan_ns > search.single.makespan_ns
    if slower and options.strategy == "auto" and free:
        return search.single, _finish(search.single, target, evaluator, primitive)
    return winner, finished


def _finish(
    winner: Tried, target: Target, evaluator: Evaluator, primitive: SyncPrimitive
) -> _Finished:
    """Plans the memory; where that needs more than the device has, buys it back with syncs."""
    evaluated, placement = winner.evaluated, winner.evaluated.placement
    synced, timeline = evaluated.synced, evaluated.timeline
    if primitive != synced.primitive:
        synced = synchronise(placement, target, synced.added, primitive)
    memory = plan_memory(placement, synced.plan.clock, synced.where)
    if memory.arena_bytes > target.limits.memory_bytes and synced.where.lanes > 1:
        tight = plan_memory(placement, synced.plan.clock, synced.where, ordered=False)
        if tight.arena_bytes <= target.limits.memory_bytes:
            memory = tight
            orders = (*synced.added, *tight.hazards)
            synced = synchronise(placement, target, orders, primitive)
            timeline = evaluator(schedule_of(synced, target, evaluated.strategy))
    schedule = schedule_of(synced, target, evaluated.strategy, memory)
    schedule = replace(schedule, physical_streams=physical_streams(schedule))
    return _Finished(schedule, timeline, synced, memory)


def _result(
    finished: _Finished, winner: Tried, search: Search, options: ScheduleOptions
) -> ScheduleResult:
    bounds = search.bounds(winner)
    plan, makespan = finished.synced.plan, finished.timeline.makespan_ns / 1000
    return ScheduleResult(
        schedule=replace(finished.schedule, requested_streams=options.num_streams),
        timeline=finished.timeline,
        graph=winner.variant.graph,
        micro_batches=winner.variant.sizes,
        strategy=options.strategy,
        chosen=winner.evaluated.strategy,
        requested=options.num_streams,
        used=winner.evaluated.placement.used,
        cross_stream_dependencies=plan.cross_stream_dependencies,
        ge_rule_events=plan.ge_rule_events,
        events=len(plan.events),
        event_ids=finished.synced.ids.count,
        user_points=len(winner.variant.points.kept),
        redundant_points=winner.variant.points.redundant,
        makespan_us=makespan,
        period_us=_period_ns(finished, winner, search.evaluator) / 1000,
        best_found_us=min(search.best.makespan_ns / 1000, makespan),
        single_stream_us=search.single.makespan_ns / 1000,
        critical_path_us=bounds.us.get("critical_path", 0.0),
        bounds=bounds.us,
        lower_bound_us=bounds.best,
        binding_resource=bounds.binding,
        peak_memory_bytes=finished.memory.arena_bytes,
        live_memory_bytes=finished.memory.live_bytes,
        weight_bytes=finished.memory.weight_bytes,
        memory_planner=finished.memory.planner,
        candidates=search.rows(winner),
        solver=winner.evaluated.placement.solver,
        single_timeline=search.single.evaluated.timeline,
    )


def _period_ns(finished: _Finished, winner: Tried, evaluator: Evaluator) -> int:
    """The distance between iterations, which overlap where micro-batches follow each other."""
    makespan = finished.timeline.makespan_ns
    if not winner.variant.sizes:
        return makespan
    return steady_period_ns(finished.schedule, makespan, finished.memory.weight_bytes, evaluator)


def _decided(winner: Tried, finished: _Finished) -> Decided:
    """What the log tells of: the placement with its syncs as they are, and who wanted what."""
    graph = winner.variant.graph
    labels = {op.name: op.info.label for op in graph.ops if op.info.label}
    return Decided(
        winner.evaluated.strategy,
        finished.synced,
        finished.timeline,
        winner.variant.fixed,
        labels,
        finished.memory,
    )
