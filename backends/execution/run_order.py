"""In which order a run starts and ends the tasks of a schedule."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from gecompiler.ir.errors import ScheduleError, UsageError
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Timeline


class Step(NamedTuple):
    """One thing that happens: a task starts, or it ends."""

    what: Literal["start", "end"]
    task: int


def steps(schedule: Schedule, timeline: Timeline | None, order: Sequence[int] | None) -> list[Step]:
    """Starts and ends of all tasks, each start before its end.

    In the order of the timeline's times: at one instant ends come before starts, and starts in
    an order that happens-before allows, else by id. With ``order`` (all task ids) the tasks run
    one after the other in that order, whatever the timeline says; without either they run one
    after the other in happens-before order.
    """
    if order is not None:
        _check_order(schedule, order)
        return [Step(what, task) for task in order for what in ("start", "end")]
    if timeline is None:
        return steps(schedule, None, happens_before_order(schedule))
    times = _times(schedule, timeline)
    place = {t: i for i, t in enumerate(happens_before_order(schedule, times))}
    marks: list[tuple[int, int, int, int, Step]] = []
    for task, (start, end) in times.items():
        # A task without duration ends right where it starts, after the tasks it waited for.
        instant = start == end
        marks.append((start, 1, place[task], 0, Step("start", task)))
        marks.append((end, int(instant), place[task], 1, Step("end", task)))
    return [step for *_, step in sorted(marks)]


def happens_before_order(
    schedule: Schedule, times: dict[int, tuple[int, int]] | None = None
) -> list[int]:
    """All task ids, each after those that stream order and events put before it.

    Among ready tasks the earliest start, then the lowest id, comes first. ScheduleError when
    they wait for each other.
    """
    after: dict[int, list[int]] = {task.id: [] for task in schedule.tasks}
    waiting = dict.fromkeys(after, 0)
    pairs = [(e.producer, e.consumer) for e in schedule.events]
    for tasks in schedule.streams.values():
        pairs += [(a.id, b.id) for a, b in pairwise(tasks)]
    for before, then in pairs:
        if before not in after or then not in after:
            raise ScheduleError(f"an event names a task that is none: {before} -> {then}")
        after[before].append(then)
        waiting[then] += 1

    def key(task: int) -> tuple[int, int]:
        return (times[task][0] if times else 0, task)

    ready = [key(task) for task, count in waiting.items() if not count]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        _, task = heapq.heappop(ready)
        found.append(task)
        for then in after[task]:
            waiting[then] -= 1
            if not waiting[then]:
                heapq.heappush(ready, key(then))
    if len(found) < len(after):
        stuck = next(t for t, count in waiting.items() if count)
        raise ScheduleError(
            f"task {schedule.tasks[stuck].name!r} waits for a task that waits for it",
            where=schedule.model,
            hint="`gec check` on the schedule names the cycle",
        )
    return found


def _times(schedule: Schedule, timeline: Timeline) -> dict[int, tuple[int, int]]:
    times = {span.task: (span.start_ns, span.end_ns) for span in timeline.spans}
    missing = [task.name for task in schedule.tasks if task.id not in times]
    if missing or len(times) != len(schedule.tasks):
        raise ScheduleError(
            f"the timeline has {len(times)} tasks, the schedule {len(schedule.tasks)}"
            + (f"; {missing[0]!r} is missing" if missing else ""),
            where=schedule.model,
            hint="simulate this schedule anew",
        )
    return times


def _check_order(schedule: Schedule, order: Sequence[int]) -> None:
    if sorted(order) != sorted(task.id for task in schedule.tasks):
        raise UsageError(
            f"expected an order of all {len(schedule.tasks)} task ids, each once, "
            f"found {len(order)} items",
            where="order",
        )
