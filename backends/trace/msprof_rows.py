"""One card's tasks, sorted into what a profiler lists as operators, collectives and copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from gecompiler.backends.trace.intervals import Lanes, StepTime, lanes, step_time
from gecompiler.backends.trace.recording import COMMUNICATION, COPY, START_NS, Recording, TaskFacts
from gecompiler.ir.schedule import Task
from gecompiler.ir.timeline import Span


class Row(NamedTuple):
    """A task's run with all that is known of it."""

    span: Span
    task: Task
    facts: TaskFacts


@dataclass(frozen=True)
class CardRows:
    """The rows of one card in the order of time."""

    rank: int
    rows: tuple[Row, ...]

    @cached_property
    def computing(self) -> tuple[Row, ...]:
        """Operators: all that is neither a collective nor a copy."""
        return tuple(r for r in self.rows if r.facts.task_type not in (COMMUNICATION, COPY))

    @cached_property
    def collectives(self) -> tuple[Row, ...]:
        """Collectives and transfers between cards."""
        return tuple(r for r in self.rows if r.facts.task_type == COMMUNICATION)

    @cached_property
    def groups(self) -> dict[tuple[str, int], int]:
        """A number for each communicator on each stream: collectives of one never overlap."""
        keys = sorted({group_of(row) for row in self.collectives})
        return {key: number for number, key in enumerate(keys)}

    @cached_property
    def lanes(self) -> Lanes:
        """Computing, communication, what it hides, and neither."""
        return lanes(_intervals(self.computing), _intervals(self.collectives))

    def step_time(self, step: str) -> StepTime:
        """The sums of the lanes, as the card's only step."""
        bubble = sum(r.span.duration_ns for r in self.collectives if is_receive(r.span.op_type))
        return step_time(self.lanes, self.rank, step, bubble)


def card_rows(recording: Recording, rank: int) -> CardRows:
    """The rows of ``rank``."""
    tasks = recording.schedule.tasks
    spans = sorted(
        (s for s in recording.timeline.spans if s.rank == rank),
        key=lambda s: (s.start_ns, s.stream, s.task),
    )
    return CardRows(
        rank, tuple(Row(s, tasks[s.task], recording.facts_of(tasks[s.task])) for s in spans)
    )


def group_of(row: Row) -> tuple[str, int]:
    """The communicator and stream of a collective."""
    return row.task.communicator, row.span.stream


def is_receive(op_type: str) -> bool:
    """Whether a transfer waits for what another card sends: ``hcom_receive_``, ``Recv``."""
    return op_type.lower().removeprefix("hcom_").startswith("rec")


def _intervals(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(r.span.start_ns, r.span.end_ns) for r in rows]


def stamp(ns: int) -> str:
    """A point in time as text in microseconds, exact to the nanosecond."""
    ns += START_NS
    return f"{ns // 1000}.{ns % 1000:03d}"


def length(ns: int) -> str:
    """A duration as text in microseconds, exact, without zeros at its end."""
    return format((Decimal(ns) / 1000).normalize(), "f")
