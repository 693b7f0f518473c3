"""The parts of collectives: which tasks of the ranks belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule, Task

Key = tuple[str, int]
"""What the parts of one collective share within its communicator, and the how manieth it is."""

POINT_TO_POINT = ("Send", "Recv")


def shared_name(name: str, rank: int) -> str:
    """A task's name without its rank: what the parts of one collective have in common."""
    return name.removeprefix(f"{rank}:")


def keys(schedule: Schedule) -> dict[int, Key]:
    """By the ids of tasks that take part in a collective.

    Parts have the same name but for the rank. A Send and its Recv are ops of their own and have
    the same signature instead. Where a rank has several of one name, they count in stream order.
    """
    rows: dict[tuple[str, int, str], list[Task]] = {}
    for task in schedule.tasks:
        if task.communicator:
            rows.setdefault((task.communicator, task.rank, _title(task)), []).append(task)
    found: dict[int, Key] = {}
    for (_, _, title), row in rows.items():
        if len(row) > 1 and len({t.stream for t in row}) == 1:
            row.sort(key=lambda t: t.order)
        for number, task in enumerate(row):
            found[task.id] = (title, number)
    return found


def _title(task: Task) -> str:
    if task.op_type in POINT_TO_POINT:
        return task.signature
    return shared_name(task.name, task.rank)


def teams(schedule: Schedule) -> list[tuple[int, ...]]:
    """For each task the tasks that go on together: itself, or the parts of its collective."""
    parts: dict[tuple[str, Key], list[int]] = {}
    for task, key in keys(schedule).items():
        parts.setdefault((schedule.tasks[task].communicator, key), []).append(task)
    team: list[tuple[int, ...]] = [(t.id,) for t in schedule.tasks]
    for ids in parts.values():
        for t in ids:
            team[t] = tuple(sorted(ids))
    return team
