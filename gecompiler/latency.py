"""What the time from the first to the last task consists of, along the critical path."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from gecompiler.html_report.critical import critical_tasks
from gecompiler.ir.timeline import Timeline


@dataclass(frozen=True, slots=True)
class LatencySplit:
    """The parts of the makespan, in ns; together they are it.

    ``running`` is that of the tasks on the critical path by what limited each, the most first;
    ``between`` lies between them: task gaps, records and waits. ``host`` is the time before the
    path where the host was what issued its first task last.
    """

    makespan_ns: int
    tasks: tuple[int, ...]
    running: tuple[tuple[str, int], ...]
    between_ns: int
    host_ns: int
    slowed_ns: int
    """How much of ``running`` is more than the tasks take with nothing beside them."""

    def as_dict(self) -> dict[str, Any]:
        """As report.json has it, in us."""
        return {
            "critical_tasks": len(self.tasks),
            "running_us": {name or "unknown": ns / 1000 for name, ns in self.running},
            "between_us": self.between_ns / 1000,
            "host_us": self.host_ns / 1000,
            "slowed_us": self.slowed_ns / 1000,
        }


def latency_split(timeline: Timeline) -> LatencySplit:
    """Splits the makespan along the critical path."""
    path = critical_tasks(timeline)
    by_task = {span.task: span for span in timeline.spans}
    spans = [by_task[task] for task in path]
    running: dict[str, int] = defaultdict(int)
    for span in spans:
        running[span.bound_by] += span.duration_ns
    before = spans[0].start_ns if spans else 0
    by_host = bool(spans) and spans[0].wait_cause == "resource"
    host = before if by_host else 0
    return LatencySplit(
        timeline.makespan_ns,
        path,
        tuple(sorted(running.items(), key=lambda row: (-row[1], row[0]))),
        timeline.makespan_ns - host - sum(running.values()),
        host,
        sum(max(0, span.duration_ns - span.alone_ns) for span in spans),
    )
