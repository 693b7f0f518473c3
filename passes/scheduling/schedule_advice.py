"""Warnings about streams that cost time or bring none."""

from __future__ import annotations

import math

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.passes.scheduling.schedule_records import ScheduleResult
from gecompiler.passes.streams.local_search import waiting_chain

LITTLE_OVERLAP = 0.02
"""Streams that run side by side for less than this share of the busy time hardly help."""

LITTLE_GAIN = 0.005
"""So are streams that make the whole faster by less than this share."""


def warn_if_in_vain(result: ScheduleResult, by_user: bool, diagnostics: Diagnostics) -> None:
    """Warns when the schedule is slower than one stream, or its streams hardly overlap."""
    if result.strategy != "auto" and not by_user:
        _warn_if_unused(result, diagnostics)
    if result.used < 2:
        return
    asked = "the stream assignment" if by_user else f"strategy {result.strategy!r}"
    if result.makespan_us > result.single_stream_us:
        loss = result.makespan_us / result.single_stream_us - 1
        diagnostics.warn(
            "slower-than-single",
            f"{asked} takes {result.makespan_us:.1f} us on {result.used} streams, "
            f"{loss:.1%} more than the {result.single_stream_us:.1f} us of one stream",
            "leave the choice to strategy 'auto', or use one stream",
        )
    gain = result.single_stream_us / result.makespan_us - 1 if result.makespan_us else 0.0
    if result.timeline.overlap >= LITTLE_OVERLAP and not 0 <= gain < LITTLE_GAIN:
        return
    diagnostics.warn(
        "pseudo-parallel",
        f"{result.used} streams are used, side by side {result.timeline.overlap:.1%} of the busy "
        f"time, for a gain of {gain:.1%}: {cause(result)}",
        "one stream does as well; `gec compile --streams 1`",
    )


_UNUSED = {
    "default": "each engine has one stream, and those that wait for each other were joined",
    "compute_overlap": "no load issued ahead shortens a kernel by more than its syncs cost",
    "pipeline": "a micro-batch runs on one, and pipeline_depth says how many are in flight",
    "critical_path": "no more tasks gain from running side by side",
    "single": "it uses one",
}


def _warn_if_unused(result: ScheduleResult, diagnostics: Diagnostics) -> None:
    """Tells of streams that were asked for and stay empty."""
    wanted = min(result.requested or 1, result.schedule.limits.max_streams)
    if result.used < wanted:
        diagnostics.warn(
            "streams-unused",
            f"strategy {result.strategy!r} uses {result.used} of {wanted} streams: "
            f"{_UNUSED.get(result.chosen, 'it needs no more')}",
            "compare with strategy 'auto'",
        )


def cause(result: ScheduleResult) -> str:
    """Why streams bring so little: little work on one, a dependency, or a resource, by name."""
    return _little_work(result) or _resource(result) or _dependency(result)


def _little_work(result: ScheduleResult) -> str:
    timeline = result.timeline
    busy = {key: timeline.busy_ns(*key) for key in timeline.streams}
    total = math.fsum(busy.values())
    idle = {key: ns for key, ns in busy.items() if ns < LITTLE_OVERLAP * total}
    if len(busy) - len(idle) > 1 or not idle:
        return ""
    names = ", ".join(f"Stream{stream} ({idle[rank, stream] / total:.1%})" for rank, stream in idle)
    return f"all but a few tasks are on one stream; the rest: {names} of the busy time"


def _resource(result: ScheduleResult) -> str:
    """The resource that tasks which run side by side share, where they do run so."""
    timeline = result.timeline
    if timeline.overlap < LITTLE_OVERLAP:
        return ""
    slowed: dict[str, int] = {}
    for span in timeline.spans:
        lost = span.duration_ns - span.alone_ns
        if lost > 0 and span.bound_by:
            slowed[span.bound_by] = slowed.get(span.bound_by, 0) + lost
    if not slowed:
        return ""
    worst = max(sorted(slowed), key=slowed.__getitem__)
    return (
        f"tasks that run side by side share {worst} and take {slowed[worst] / 1000:.1f} us longer "
        "than alone"
    )


def _dependency(result: ScheduleResult) -> str:
    """The longest wait for another stream along the chain that the end waited for."""
    spans = {span.task: span for span in result.timeline.spans}
    chain = [(task, other) for task, other, event in waiting_chain(result.timeline) if event]
    chain = chain or [(e.consumer, e.producer) for e in result.schedule.events]
    if not chain:
        return f"{result.binding_resource} is what limits the work"
    task, other = max(chain, key=lambda pair: (spans[pair[0]].wait_ns, -pair[0]))
    tensors = next(
        (e.tensors for e in result.schedule.events if (e.producer, e.consumer) == (other, task)), ()
    )
    what = f" because of {tensors[0]!r}" if tensors else ""
    more = f", and there are {len(chain) - 1} more such waits" if len(chain) > 1 else ""
    return f"{spans[task].name!r} waits for {spans[other].name!r}{what}{more}"
