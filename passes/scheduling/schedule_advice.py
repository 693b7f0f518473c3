"""Warnings about streams that cost time or bring none."""

from __future__ import annotations

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.passes.scheduling.schedule_records import ScheduleResult

LITTLE_OVERLAP = 0.02
"""Streams that run side by side for less than this share of the busy time hardly help."""


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
        return
    if result.timeline.overlap < LITTLE_OVERLAP:
        diagnostics.warn(
            "pseudo-parallel",
            f"{result.used} streams are used, but side by side only "
            f"{result.timeline.overlap:.1%} of the busy time: {_cause(result)}",
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


def _cause(result: ScheduleResult) -> str:
    if result.binding_resource == "critical_path":
        return "each task waits for the one before it on another stream"
    return f"{result.binding_resource} is what limits the work"
