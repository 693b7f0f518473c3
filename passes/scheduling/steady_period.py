"""How far apart iterations are when one begins before the one before it has ended.

Iterations are issued back to back: on each stream the tasks of one follow those of the one
before. Two of them are under way at most, each with memory of its own for inputs, outputs and
activations, so that an iteration starts on every stream after the last but one has ended on all;
weights are only read. What hands state to the next iteration (a KV cache) does not overlap.
"""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.schedule import Event, Schedule, Task
from gecompiler.ir.target import Evaluator

ITERATIONS = 4
"""The last is left out: it drains the streams, with no iteration behind it."""


def steady_period_ns(
    schedule: Schedule, makespan_ns: int, weight_bytes: int, evaluator: Evaluator
) -> int:
    """The mean distance between the ends of iterations issued back to back.

    The makespan where iterations do not overlap: they hand on state, there is no memory for two,
    all is on one stream, or there are several ranks.
    """
    limit = schedule.limits.memory_bytes
    twice = 2 * schedule.arena_bytes - weight_bytes
    joined = schedule.states or schedule.communicators or len(schedule.streams) < 2
    if joined or twice > limit:
        return makespan_ns
    timeline = evaluator(_repeated(schedule, ITERATIONS))
    count = len(schedule.tasks)
    ends = [0] * ITERATIONS
    for span in timeline.spans:
        iteration = span.task // count
        ends[iteration] = max(ends[iteration], span.end_ns)
    return min(makespan_ns, -((ends[0] - ends[-2]) // (ITERATIONS - 2)))


def _repeated(schedule: Schedule, times: int) -> Schedule:
    """The schedule several times over, without memory: two iterations never share any."""
    tasks: list[Task] = []
    events: list[Event] = []
    count = len(schedule.tasks)
    ids = 1 + max((e.event_id for e in schedule.events), default=-1)
    length = {stream: len(lane) for (_, stream), lane in schedule.streams.items()}
    for i in range(times):
        for task in schedule.tasks:
            order = task.order + i * length[task.stream]
            name = f"{task.name}@{i}"
            tasks.append(replace(task, id=i * count + task.id, name=name, order=order))
        events += [_moved(event, i * count, i * ids) for event in schedule.events]
        if i >= 2:
            events += _after_last_but_one(schedule, i, times * ids)
    return replace(schedule, tasks=tuple(tasks), events=tuple(events), controls=(), buffers=())


def _after_last_but_one(schedule: Schedule, iteration: int, first_id: int) -> list[Event]:
    """An iteration starts on each stream when the last but one has ended on all others."""
    shift = len(schedule.tasks) * iteration
    before = shift - 2 * len(schedule.tasks)
    lanes = list(schedule.streams.values())
    return [
        Event(before + ended[-1].id, shift + lane[0].id, "buffer", (), first_id + place)
        for place, ended in enumerate(lanes)
        for lane in lanes
        if lane is not ended
    ]


def _moved(event: Event, tasks: int, ids: int) -> Event:
    return replace(
        event,
        producer=event.producer + tasks,
        consumer=event.consumer + tasks,
        event_id=event.event_id + ids,
    )
