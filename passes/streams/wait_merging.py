"""Fewer waits than the orders need, where the simulated time allows it.

The fewest events that add no order are unique (`sync`). Two waits of one stream for another can
become one, of the earlier consumer for the later producer: that adds an order, and may hold the
consumer back. A merge is kept where the simulated time does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gecompiler.ir.schedule import Event
from gecompiler.ir.target import Evaluator, Target
from gecompiler.passes.scheduling.task_graph import Dep
from gecompiler.passes.streams.evaluation import Evaluated, schedule_of, synchronise

MOST_RUNS = 40
"""So many merges are tried one by one, after all that seem free together."""


def merge_waits(evaluated: Evaluated, target: Target, evaluator: Evaluator) -> Evaluated:
    """Merges waits as far as the makespan stays; never more events, never a longer time.

    The numbers that the plan compares itself with stay those of the orders that are needed.
    """
    best = evaluated
    start = {s.task: s.start_ns for s in evaluated.timeline.spans}
    end = {s.task: s.end_ns for s in evaluated.timeline.spans}
    free = [
        order
        for first, second in _pairs(evaluated)
        if end[second.producer] <= start[first.consumer]
        for order in _orders(first, second)
    ]
    if free:
        best = _better(best, free, target, evaluator)
    refused: set[tuple[int, int]] = set()
    for _ in range(MOST_RUNS):
        pair = next((p for p in _pairs(best) if _key(*p) not in refused), None)
        if pair is None:
            break
        found = _better(best, _orders(*pair), target, evaluator)
        if found is best:
            refused.add(_key(*pair))
        best = found
    return best


def _better(
    best: Evaluated, more: Sequence[Dep], target: Target, evaluator: Evaluator
) -> Evaluated:
    """``best`` with more orders where that has fewer events and takes no longer."""
    known, plan = best.synced, best.synced.plan
    synced = synchronise(best.placement, target, (*known.added, *more), known.primitive)
    if len(synced.plan.events) >= len(plan.events):
        return best
    same = replace(
        synced.plan,
        cross_stream_dependencies=plan.cross_stream_dependencies,
        ge_rule_events=plan.ge_rule_events,
    )
    synced = replace(synced, plan=same)
    timeline = evaluator(schedule_of(synced, target, best.strategy))
    if timeline.makespan_ns > best.makespan_ns:
        return best
    return Evaluated(best.strategy, synced, timeline)


def _pairs(evaluated: Evaluated) -> list[tuple[Event, Event]]:
    """Waits between the same two streams that follow each other and may become one."""
    where = evaluated.synced.where
    by_lanes: dict[tuple[int, int], list[Event]] = {}
    for event in evaluated.synced.plan.events:
        lanes = (where.lane[event.producer], where.lane[event.consumer])
        by_lanes.setdefault(lanes, []).append(event)
    found: list[tuple[Event, Event]] = []
    for events in by_lanes.values():
        events.sort(key=lambda e: where.order[e.producer])
        # The later producer must come before the earlier consumer in the sequence.
        found += [
            (a, b) for a, b in pairwise(events) if where.rank[b.producer] < where.rank[a.consumer]
        ]
    return found


def _key(first: Event, second: Event) -> tuple[int, int]:
    """The ends of the wait that stands for both."""
    return (second.producer, first.consumer)


def _orders(first: Event, second: Event) -> list[Dep]:
    """The order that stands for both waits, with the reasons of both."""
    pair = _key(first, second)
    reasons = [(e.kind, t) for e in (first, second) for t in e.tensors or ("",)]
    return [Dep(*pair, kind, tensor) for kind, tensor in dict.fromkeys(reasons)]
