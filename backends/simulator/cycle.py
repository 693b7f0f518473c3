"""Says which tasks wait for each other when a simulation cannot go on."""

from __future__ import annotations

from itertools import pairwise

from gecompiler.backends.simulator.plan import Plan
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Schedule


def explain_stuck(schedule: Schedule, plan: Plan, stuck: list[int]) -> ScheduleError:
    """An error naming one circle among the tasks that never ran. O(tasks + events)."""
    left = set(stuck)
    waits_for: dict[int, int] = {}
    for queue in plan.queues:
        waits_for |= {after: before for before, after in pairwise(queue) if before in left}
    for producer, consumers in sorted(plan.consumers.items()):
        if producer in left:
            for consumer in consumers:
                waits_for.setdefault(consumer, producer)
    for members in plan.parties:
        for member in members:
            others = [m for m in members if m in waits_for]
            if member in left and member not in waits_for and others:
                waits_for[member] = others[0]
    circle = _circle(waits_for, stuck[0])
    tasks = [schedule.tasks[i] for i in circle]
    several = len({t.rank for t in schedule.tasks}) > 1
    names = [
        f"{t.name!r} ({f'rank {t.rank}, ' if several else ''}stream {t.stream})" for t in tasks
    ]
    return ScheduleError(
        f"deadlock, {len(stuck)} tasks never run: "
        + " waits for ".join([*names, names[0]] if len(names) > 1 else [names[0], "itself"]),
        where=schedule.model,
        hint="remove or reverse one of these waits, or reorder the tasks on their stream",
    )


def _circle(waits_for: dict[int, int], first: int) -> list[int]:
    seen: dict[int, int] = {}
    path: list[int] = []
    at = first
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        if at not in waits_for:
            return path
        at = waits_for[at]
    return path[seen[at] :]
