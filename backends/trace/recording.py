"""The events that every trace dialect writes: task runs, waits between streams, use of resources.

A dialect decides how an event is spelled; what there is to write, and which class of work a
task is (`TaskFacts`), is decided here alone, so that the dialects cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.timeline import Span, Timeline, Usage

START_NS = 1000
"""Where the trace's clock stands when the timeline's is 0: a clock at 0 is dropped by some."""

MAX_POINTS = 20_000
"""Points of a counter; a longer curve is thinned to means over equal times."""

COMMUNICATION = "COMMUNICATION"
"""The task type of collectives (older profilers: HCCL)."""

COPY = "SDMA_SQE"
"""The task type of loads, stores and copies, which no operator table lists."""


class Tensors(NamedTuple):
    """Operands as profilers spell them, one item each: ``2,8``, ``FLOAT16``, ``ND``."""

    shapes: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


NO_TENSORS = Tensors()


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What a table of operators says of one task beyond its times."""

    task_type: str
    inputs: Tensors = NO_TENSORS
    outputs: Tensors = NO_TENSORS
    blocks: int = 0
    """Cores that it ran on."""
    cube_us: float = 0.0
    """Microseconds in which its cube cores computed, as if all did together."""
    vector_us: float = 0.0
    """The same of its vector cores."""


class Arrow(NamedTuple):
    """A wait across streams: from within the producer's last nanosecond to the consumer."""

    number: int
    source: Span
    leaves_ns: int
    target: Span
    arrives_ns: int


class Point(NamedTuple):
    """From this time on, this much of a resource is in use. ``rank`` None: between cards."""

    resource: str
    rank: int | None
    time_ns: int
    percent: float


@dataclass(frozen=True)
class Recording:
    """A timeline with the schedule whose tasks it runs; what every dialect writes down."""

    timeline: Timeline
    schedule: Schedule
    facts: Mapping[int, TaskFacts] = field(default_factory=dict)
    """By task id; where one is absent it follows from the task's demand."""
    step: str = "1"
    """The name of the one step that a timeline is."""

    @property
    def ranks(self) -> list[int]:
        """The cards, ascending."""
        return sorted({s.rank for s in self.timeline.spans})

    def facts_of(self, task: Task) -> TaskFacts:
        """The facts given for a task, or those that follow from its demand."""
        return self.facts.get(task.id) or derived_facts(task)

    def arrows(self) -> Iterator[Arrow]:
        """The waits, numbered from 1 in the timeline's order."""
        spans = self.timeline.spans
        for number, (producer, consumer) in enumerate(self.timeline.events, start=1):
            source, target = spans[producer], spans[consumer]
            leaves = max(source.start_ns, source.end_ns - 1)
            yield Arrow(number, source, leaves, target, target.start_ns)

    def points(self) -> Iterator[Point]:
        """Every resource's curve, a point where it changes."""
        ranks = self.ranks
        for usage in self.timeline.usage:
            name, rank = owner(usage.resource, ranks)
            last: float | None = None
            for time, part in thinned(usage, self.timeline.makespan_ns):
                value = round(100 * part, 3)
                if value != last:
                    yield Point(name, rank, time, value)
                last = value


def task_type(task: Task) -> str:
    """AI_CORE, AI_VECTOR_CORE, MIX_AIC, ... : by what the task asks for."""
    if task.kind == "collective":
        return COMMUNICATION
    if task.kind in ("load", "store", "copy"):
        return COPY
    if task.kind == "host":
        return "AI_CPU"
    cube, vector = task.demand.cube_us, task.demand.vector_us
    if cube > 0 and vector > 0:
        return "MIX_AIC" if cube >= vector else "MIX_AIV"
    return "AI_CORE" if cube > 0 else "AI_VECTOR_CORE"


def derived_facts(
    task: Task, inputs: Tensors = NO_TENSORS, outputs: Tensors = NO_TENSORS
) -> TaskFacts:
    """What follows from a task's demand."""
    demand = task.demand
    cube, vector = demand.cube_cores, demand.vector_cores
    return TaskFacts(
        task_type(task),
        inputs,
        outputs,
        blocks=cube or vector,
        cube_us=demand.cube_us / cube if cube else 0.0,
        vector_us=demand.vector_us / vector if vector else 0.0,
    )


def owner(resource: str, ranks: list[int]) -> tuple[str, int | None]:
    """The resource's plain name and its card, None for a link, which lies between cards."""
    rank, colon, name = resource.partition(":")
    if colon and rank.isdigit():
        return name, int(rank)
    if resource in ("cube", "vector", "hbm", "l2"):
        return resource, ranks[0] if ranks else 0
    return resource, None


def thinned(usage: Usage, until_ns: int) -> Iterator[tuple[int, float]]:
    """The curve, or its means over `MAX_POINTS` equal times where it has more points. O(points)."""
    times, parts = usage.times_ns, usage.fractions
    if len(times) <= MAX_POINTS or until_ns <= MAX_POINTS:
        yield from zip(times, parts, strict=True)
        return
    width = -(-until_ns // MAX_POINTS)
    bucket, area = 0, 0.0
    for i, part in enumerate(parts):
        start, end = times[i], times[i + 1] if i + 1 < len(times) else max(until_ns, times[i])
        while end >= (bucket + 1) * width:
            edge = (bucket + 1) * width
            yield bucket * width, (area + part * (edge - start)) / width
            bucket, area, start = bucket + 1, 0.0, edge
        area += part * (end - start)
    yield bucket * width, area / width
    yield until_ns, parts[-1] if times[-1] >= until_ns else 0.0
