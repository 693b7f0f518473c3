"""Communication kernels that together want more vector cores than there are.

Such a kernel holds its cores while it waits for its partners on other cards. When two run at
once and the second does not get its cores, each card may be stuck in another one of them: a
deadlock that shows only under load (torchair's deadlock_check looks for the same pairs).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule, Task

MOST_STEPS = 100_000
"""After so many steps of the search for one group only pairs are looked for."""


def check_cores(schedule: Schedule, order: HappensBefore) -> Iterator[Finding]:
    """One finding for each kernel that heads a group which nothing orders and that is too wide."""
    there = schedule.limits.vector_cores
    by_rank: dict[int, list[list[Task]]] = {}
    for (rank, _), queue in schedule.streams.items():
        row = [t for t in queue if _communicates(t) and 0 < t.demand.vector_cores <= there]
        if row:
            by_rank.setdefault(rank, []).append(row)
    for rows in by_rank.values():
        if len(rows) < 2 or sum(max(map(_cores, row)) for row in rows) <= there:
            continue
        for i, row in enumerate(rows):
            for task in row:
                group = _Groups(order, there).widest(task, rows[i + 1 :])
                if group:
                    yield _finding(group, there)


def _communicates(task: Task) -> bool:
    return task.kind == "collective" or bool(task.communicator)


def _cores(task: Task) -> int:
    return task.demand.vector_cores


def _finding(group: Sequence[Task], there: int) -> Finding:
    names = [t.name for t in group]
    wanted = " + ".join(str(_cores(t)) for t in group)
    return Finding(
        "core_oversubscription",
        "deadlock",
        f"the communication kernels {' and '.join(map(repr, names))} may run at once and want "
        f"{wanted} = {sum(map(_cores, group))} vector cores, the device has {there}: each may "
        "hold cores while it waits for the others",
        tuple(names),
        fix=sync_fix(names[0], names[1], "control") + ", or limit their cores",
    )


class _Groups:
    """Searches for kernels, at most one a stream, of which none is ordered before another."""

    def __init__(self, order: HappensBefore, there: int) -> None:
        self.order = order
        self.there = there
        self.steps = 0

    def widest(self, first: Task, rows: Sequence[Sequence[Task]]) -> list[Task]:
        """``first`` and others that want more than there is; empty when there are none."""
        return self._extend([first], _cores(first), self._beside(first, rows))

    def _beside(self, task: Task, rows: Sequence[Sequence[Task]]) -> list[list[Task]]:
        """What of the rows may run beside the task; of each row a stretch."""
        ordered = self.order.ordered
        found: list[list[Task]] = []
        for row in rows:
            low = bisect_left(row, True, key=lambda t: not ordered(t.id, task.id))
            high = bisect_left(row, True, lo=low, key=lambda t: ordered(task.id, t.id))
            if low < high:
                found.append(list(row[low:high]))
        return found

    def _extend(self, group: list[Task], sum_: int, rows: list[list[Task]]) -> list[Task]:
        if sum_ > self.there:
            return group
        if sum_ + sum(max(map(_cores, row)) for row in rows) <= self.there:
            return []
        self.steps += 1
        if self.steps > MOST_STEPS and len(group) > 1:
            return []
        for i, row in enumerate(rows):
            for task in sorted(row, key=lambda t: (-_cores(t), t.id)):
                wide = self._extend(
                    [*group, task], sum_ + _cores(task), self._beside(task, rows[i + 1 :])
                )
                if wide:
                    return wide
        return []
