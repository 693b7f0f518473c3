"""What the page says first: what the time goes into, and which waits were longest."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gecompiler.ir.timeline import Timeline


def facts(timeline: Timeline) -> dict[str, Any]:
    """Busy time by what limits it, the idle time, and the time streams stood waiting.

    ``busy`` is in ns by resource, the most first; ``idle`` is the time in which no task runs;
    ``event_waits`` are how many tasks waited for an event, and how long in all.
    """
    busy: dict[str, int] = defaultdict(int)
    for span in timeline.spans:
        busy[span.bound_by] += span.duration_ns
    waits = [s.wait_ns for s in timeline.spans if s.wait_cause == "event" and s.wait_ns > 0]
    ranked = sorted(busy.items(), key=lambda item: (-item[1], item[0]))
    return {
        "busy": [[name, time] for name, time in ranked],
        "idle": idle_ns(timeline),
        "event_waits": len(waits),
        "event_wait": sum(waits),
        "overlap": round(timeline.overlap, 6),
    }


def idle_ns(timeline: Timeline) -> int:
    """The time before the last task's end in which no task runs."""
    covered = end = 0
    for start, stop in sorted((s.start_ns, s.end_ns) for s in timeline.spans):
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    return timeline.makespan_ns - covered
