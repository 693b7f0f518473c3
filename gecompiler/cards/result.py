"""The schedule of several cards as the `ScheduleResult` that reports are made of."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.cards.schedule import CardsResult, least_streams, schedule_cards
from gecompiler.cards.side_by_side import Way
from gecompiler.passes.rank_schedules import TemplateSchedule
from gecompiler.passes.rank_schedules.bounds import rank_bounds
from gecompiler.passes.rank_schedules.controlled import ControlledSchedule
from gecompiler.passes.rank_schedules.template import STRATEGY
from gecompiler.passes.scheduling.schedule_records import CandidateRow, ScheduleResult
from gecompiler.passes.streams.bounds import Bounds, lower_bounds
from gecompiler.passes.streams.sync_points import SyncPoint

SIDE_BY_SIDE = "side_by_side"
"""What candidates are called whose micro-batches take turns."""


def schedule_result(cards: CardsResult, requested: int | None) -> ScheduleResult:
    """Times are of all ranks together; counts of syncs are sums over the ranks simulated.

    ``single_stream_us`` is the same, the batch whole, with computing and talk on one stream of
    each rank. Lower bounds are the highest of any rank and of all together.
    """
    parts = [cards.parts[cards.program.template_of[rank]] for rank in cards.ranks]
    plans = [part.memory for part in parts if part.memory is not None]
    largest = max(plans, key=lambda plan: plan.arena_bytes)
    bounds = _bounds(cards)
    makespan = cards.timeline.makespan_ns / 1000
    events = len(cards.schedule.events)
    used = max(part.synced.placement.used for part in parts)
    single = _single_us(cards)
    rows = _candidates(cards, used, makespan, events)
    best = min([single, *(row.makespan_us for row in rows if row.makespan_us is not None)])
    return ScheduleResult(
        schedule=cards.schedule,
        timeline=cards.timeline,
        graph=parts[0].graph,
        micro_batches=(),
        strategy=_asked(cards),
        chosen=_named_as(cards),
        requested=requested,
        used=used,
        cross_stream_dependencies=sum(p.synced.plan.cross_stream_dependencies for p in parts),
        ge_rule_events=sum(p.synced.plan.ge_rule_events for p in parts),
        events=events,
        event_ids=max(part.synced.ids.count for part in parts),
        user_points=len(_points(cards)[0]),
        redundant_points=_points(cards)[1],
        makespan_us=makespan,
        period_us=makespan,
        best_found_us=best,
        single_stream_us=single,
        critical_path_us=bounds.us.get("critical_path", 0.0),
        bounds=bounds.us,
        lower_bound_us=min(bounds.best, best),
        binding_resource=bounds.binding,
        peak_memory_bytes=largest.arena_bytes,
        live_memory_bytes=max(plan.live_bytes for plan in plans),
        weight_bytes=max(plan.weight_bytes for plan in plans),
        memory_planner=largest.planner,
        candidates=rows,
    )


def _candidates(
    cards: CardsResult, used: int, makespan: float, events: int
) -> tuple[CandidateRow, ...]:
    """The schedule taken, and the other ways of the batch, of which one rank was simulated."""
    count = 1 if cards.shape is None else cards.shape.micro_batches
    abreast = 1 if cards.shape is None else cards.shape.abreast
    own = Way(count, abreast, cards.lanes)
    name = _named_as(cards) if _controlled(cards) else _named(own)
    rows = [CandidateRow(name, used, makespan, events, True)]
    for tried in cards.tried:
        if tried.way != own:
            streams = used - cards.lanes + tried.way.lanes
            rows.append(CandidateRow(_named(tried.way), streams, tried.makespan_us, 0, False))
    return tuple(rows)


def _controlled(cards: CardsResult) -> list[ControlledSchedule]:
    """The schedules of the ranks, where the user decided about them."""
    parts = [cards.parts[cards.program.template_of[rank]] for rank in cards.ranks]
    return [part for part in parts if isinstance(part, ControlledSchedule)]


def _asked(cards: CardsResult) -> str:
    control = cards.control
    return control.options.strategy if _controlled(cards) and control is not None else STRATEGY


def _named_as(cards: CardsResult) -> str:
    """What made the schedules: one strategy, or under ``auto`` that of each rank."""
    found = dict.fromkeys(part.decided.strategy for part in _controlled(cards))
    return ", ".join(found) or STRATEGY


def _points(cards: CardsResult) -> tuple[list[SyncPoint], tuple[SyncPoint, ...]]:
    """The sync points in force on some card, and those that say nothing new on any."""
    parts, control = _controlled(cards), cards.control
    if not parts or control is None:
        return [], ()
    kept = {point for part in parts for point in part.points if point not in part.redundant_points}
    asked = list(dict.fromkeys(control.user.sync_points))
    return [p for p in asked if p in kept], tuple(p for p in asked if p not in kept)


def _named(way: Way) -> str:
    return SIDE_BY_SIDE if way.abreast > 1 else STRATEGY


def _bounds(cards: CardsResult) -> Bounds:
    """The highest bounds of any rank, and those of all together."""
    limit = cards.cluster.limits.max_streams
    found = [lower_bounds(part.tasks, cards.cluster, limit) for part in _used(cards)]
    parts = [cards.parts[cards.program.template_of[rank]] for rank in cards.ranks]
    together = rank_bounds(cards.schedule, parts, cards.cluster, limit)
    best = max(found, key=lambda bounds: bounds.best)
    every = {**best.us, **{n: max(us, best.us.get(n, 0.0)) for n, us in together.items()}}
    return replace(best, us=every)


def _used(cards: CardsResult) -> list[TemplateSchedule]:
    templates = dict.fromkeys(cards.program.template_of[rank] for rank in cards.ranks)
    return [cards.parts[t] for t in templates]


def _single_us(cards: CardsResult) -> float:
    """One stream a rank, or as few as it takes; one rank of each kind stands for all."""
    program, cluster = cards.whole or cards.program, cards.cluster
    streams = least_streams(program)
    found = schedule_cards(
        program, cluster, streams=streams, memory=False, fold=True, costs=cards.costs
    )
    return found.timeline.makespan_ns / 1000
