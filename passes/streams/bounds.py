"""Lower bounds of the makespan: what no placement of a task graph can beat.

All hold for the simulator's rules: a task takes at least as long as alone, two tasks of a
stream are a task gap apart, a task of another stream starts at least an event's latency after
the task it waits for, and no resource does more than its capacity. Simulated instants are whole
nanoseconds, rounded up; the figures here are rounded down to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.ranks import upward_ranks
from gecompiler.passes.streams.segment_bound import segment_bound
from gecompiler.passes.streams.window_bound import one_machine, window_rows

_NOISE_NS = 1e-6


@dataclass(frozen=True)
class Bounds:
    """Lower bounds in us: ``critical_path``, ``segments``, ``streams``, and one per resource.

    The last ones are of head, work and tail: what must come before and after the work counts.

    ``segment_resource`` is what makes ``segments`` longer than the critical path.
    """

    us: Mapping[str, float]
    segment_resource: str = "critical_path"
    work: float = 0.0
    """The highest sum of work on a resource: it holds however the tasks are cut."""

    @property
    def best(self) -> float:
        """The highest, hence the one that says most."""
        return max(self.us.values(), default=0.0)

    @property
    def binding(self) -> str:
        """What that one is about; the first by name among equals."""
        highest = min(self.us, key=lambda name: (-self.us[name], name), default="")
        return self.segment_resource if highest == "segments" else highest


def whole_ns(us: float) -> float:
    """The time in us, rounded down to whole nanoseconds (but for float noise)."""
    return math.floor(us * 1000 + _NOISE_NS) / 1000


def lower_bounds(graph: TaskGraph, target: Target, streams: int) -> Bounds:
    """The bounds for any placement of the graph on at most that many streams."""
    segments = segment_bound(graph, target, streams)
    found = {
        "critical_path": critical_path_us(graph, target),
        "segments": whole_ns(segments.us),
    }
    work = 0.0
    for resource, rows in window_rows(graph, target, streams).items():
        found[resource] = whole_ns(one_machine(rows))
        work = max(work, math.fsum(us for _, us, _ in rows))
    return Bounds(found, segments.binding, whole_ns(work))


def critical_path_us(graph: TaskGraph, target: Target) -> float:
    """The longest path, each task alone, at least the cheaper of gap and event between two."""
    step = min(target.task_gap_us, target.event_us)
    return whole_ns(max(upward_ranks(graph.succs, graph.alone_us, step), default=0.0))
