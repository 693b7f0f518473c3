"""The log of a schedule: one line a decision, with the word Stream, as people look for them.

Reasons are the strategy's own where it gave one; else they are read off the schedule: which
producer a task follows, or what it runs beside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gecompiler.ir.timeline import Span, Timeline
from gecompiler.passes.memory.plan import MemoryPlan
from gecompiler.passes.scheduling.schedule_records import ScheduleResult
from gecompiler.passes.streams.evaluation import Synced
from gecompiler.passes.streams.strategy import Placement

LOG = logging.getLogger("gecompiler.streams")


@dataclass(frozen=True)
class Decided:
    """What was decided, and by whom."""

    strategy: str
    synced: Synced
    timeline: Timeline
    fixed: Mapping[str, int]
    """The streams the user chose, by task name; labels included."""
    labels: Mapping[str, str]
    """Stream labels by task name."""
    memory: MemoryPlan | None = None


def log_choice(asked: str, result: ScheduleResult) -> None:
    """Writes a line for each schedule that was considered, and for the one taken."""
    for row in result.candidates:
        time = row.note if row.makespan_us is None else f"{row.makespan_us:.1f} us"
        LOG.info(
            "Stream strategy %s on %d streams: %s%s",
            row.strategy,
            row.streams,
            time,
            ", taken" if row.chosen else "",
        )
    LOG.info(
        "Stream strategy %s: %s on %d streams, %.1f us; one stream %.1f us, at least %.1f us",
        asked,
        result.chosen,
        result.used,
        result.makespan_us,
        result.single_stream_us,
        result.lower_bound_us,
    )


def log_placement(decided: Decided) -> None:
    """Writes a line for each task, then one for each wait, at level INFO."""
    if not LOG.isEnabledFor(logging.INFO):
        return
    for line in lines(decided):
        LOG.info("%s", line)


def lines(decided: Decided) -> Iterator[str]:
    """``Stream 1: MatMul up_proj (default: label 'mlp')``, in the order of issue; then waits."""
    placement = decided.synced.placement
    tasks = placement.graph.tasks
    reasons = _Reasons(decided)
    for task in placement.sequence:
        record = tasks[task]
        what = " ".join(filter(None, (record.op_type or record.kind, record.name)))
        yield (f"Stream {placement.stream[task]}: {what} ({decided.strategy}: {reasons.of(task)})")
    for event in decided.synced.ids.events:
        producer, consumer = tasks[event.producer].name, tasks[event.consumer].name
        why = ", ".join(event.tensors) or event.kind
        yield (
            f"Stream {placement.stream[event.consumer]}: {consumer} waits for {producer} of "
            f"Stream {placement.stream[event.producer]} (event {event.event_id}, "
            f"{event.kind}: {why})"
        )


def reasons(decided: Decided) -> tuple[str, ...]:
    """Why each task is on its stream, by task id; the words of the log."""
    found = _Reasons(decided)
    return tuple(found.of(task) for task in range(len(decided.synced.placement.graph)))


class _Reasons:
    """Why each task is where it is."""

    def __init__(self, decided: Decided) -> None:
        self.decided = decided
        self.placement: Placement = decided.synced.placement
        self.alone = self.placement.used < 2
        self.before = _previous(self.placement)
        self.beside = _beside(decided.timeline)

    def of(self, task: int) -> str:
        """The user's word first, then the strategy's, then what the schedule shows."""
        name = self.placement.graph.tasks[task].name
        label = self.decided.labels.get(name)
        if name in self.decided.fixed:
            return f"label {label!r}" if label else "assigned by the user"
        given = self.placement.reasons.get(task)
        if given:
            return given
        if self.alone:
            return "all work is on one stream"
        return ", ".join(filter(None, (self._follows(task), self.beside.get(task)))) or "free here"

    def _follows(self, task: int) -> str:
        before = self.before[task]
        if before is None:
            return "the first here"
        name = self.placement.graph.tasks[before].name
        if before in self.placement.graph.preds[task]:
            return f"follows {name}, which it waits for"
        return f"after {name}"


def _previous(placement: Placement) -> dict[int, int | None]:
    """The task before each one on its stream."""
    last: dict[int, int] = {}
    found: dict[int, int | None] = {}
    for task in placement.sequence:
        stream = placement.stream[task]
        found[task] = last.get(stream)
        last[stream] = task
    return found


def _beside(timeline: Timeline) -> dict[int, str]:
    """What each task runs beside for the longest, among tasks that were started before it."""
    found: dict[int, str] = {}
    running: dict[tuple[int, int], Span] = {}
    for span in sorted(timeline.spans, key=lambda s: (s.start_ns, s.task)):
        others = [s for key, s in running.items() if key != (span.rank, span.stream)]
        shared = [(min(s.end_ns, span.end_ns) - span.start_ns, s) for s in others]
        time, other = max(shared, key=lambda p: (p[0], -p[1].task), default=(0, span))
        if time > 0:
            found[span.task] = (
                f"beside {other.name} of Stream {other.stream} for {time / 1000:.1f} us"
            )
        running[span.rank, span.stream] = span
    return found
