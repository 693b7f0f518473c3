"""A task graph on streams as an abstract `Problem`: every task as fast as alone.

Streams are identical processors. What tasks share, cores and bandwidth, becomes a resource of
which each takes the share it uses on average alone: a plan then runs side by side only what the
device runs side by side at full speed. That is the relaxation at fixed rates; on the device,
tasks may also run slower together.
"""

from __future__ import annotations

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.problem import Plan, Problem
from gecompiler.passes.streams.strategy import Placement

WHOLE = 1_000
"""Units of each resource."""


def problem_of(
    graph: TaskGraph, target: Target, streams: int, fixed: dict[int, int] | None = None
) -> Problem:
    """The graph on that many streams, in us; ``fixed`` are streams by task."""
    fixed = fixed or {}
    count = max([streams, *(s + 1 for s in fixed.values())])
    use = graph.utilisations(target)
    names = sorted({resource for row in use for resource, _ in row})
    number = {name: i for i, name in enumerate(names)}
    every = tuple(range(streams))
    return Problem(
        tuple((us,) * count for us in graph.alone_us),
        tuple((p, t, target.event_us) for t, before in enumerate(graph.preds) for p in before),
        processors=count,
        demands=tuple(
            tuple((number[r], min(WHOLE, round(share * WHOLE))) for r, share in row if share > 0)
            for row in use
        ),
        capacities=(WHOLE,) * len(names),
        allowed=tuple((fixed[t],) if t in fixed else every for t in range(len(graph))),
        gap=target.task_gap_us,
    )


def placement_of(graph: TaskGraph, plan: Plan, reason: str) -> Placement:
    """The streams and the order of a plan."""
    sequence = sorted(range(len(graph)), key=lambda t: (plan.start[t], t))
    reasons = dict.fromkeys(range(len(graph)), reason)
    return Placement(graph, plan.processor, tuple(sequence), reasons)
