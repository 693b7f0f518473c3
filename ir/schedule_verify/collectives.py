"""Collectives: every rank must meet its partners, in the same order, with the same intent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore
from gecompiler.ir.schedule_verify.parts import POINT_TO_POINT, Key, keys, shared_name

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule, Task

Rows = dict[int, dict[Key, "Task"]]
"""The parts of one communicator, by rank and key, in no order yet."""


def check_collectives(schedule: Schedule, order: HappensBefore) -> Iterator[Finding]:
    """Who takes part, with what, and in one order per communicator, enforced on every rank."""
    parts: dict[str, Rows] = {}
    for id_, key in keys(schedule).items():
        task = schedule.tasks[id_]
        parts.setdefault(task.communicator, {}).setdefault(task.rank, {})[key] = task
    ranks_of = {c.name: c.ranks for c in schedule.communicators}
    for name, by_rank in parts.items():
        if name not in ranks_of:
            first = next(iter(next(iter(by_rank.values())).values()))
            text = f"no communicator {name!r} is declared, in which {first.name!r} takes part"
            yield Finding("collective_order", "deadlock", text, (first.name,))
            continue
        yield from _Check(name, by_rank, ranks_of[name], order).findings()


class _Check:
    """The collectives of one communicator."""

    def __init__(
        self, name: str, by_rank: Rows, ranks: tuple[int, ...], order: HappensBefore
    ) -> None:
        self.name = name
        self.by_rank = by_rank
        self.ranks = ranks
        self.order = order

    def findings(self) -> Iterator[Finding]:
        strange = sorted(set(self.by_rank) - set(self.ranks))
        if strange:
            task = next(iter(self.by_rank[strange[0]].values()))
            text = f"rank {strange[0]} takes part in communicator {self.name!r} and is no member"
            yield Finding("collective_order", "deadlock", f"{text} ({task.name!r})", (task.name,))
        missing = list(self._missing())
        yield from missing
        yield from self._mismatches()
        if self.order.deadlocks:
            return
        lists = {rank: self._in_order(rank) for rank in self.ranks}
        for tasks in lists.values():
            yield from self._unordered(tasks)
        if not missing:
            yield from self._differing(lists)

    def _missing(self) -> Iterator[Finding]:
        """Parts that some ranks have and others lack, one finding for the ranks that lack."""
        holders: dict[Key, list[int]] = {}
        for rank in self.ranks:
            for key in self.by_rank.get(rank, {}):
                holders.setdefault(key, []).append(rank)
        grouped: dict[tuple[int, ...], list[Key]] = {}
        for key, there in holders.items():
            absent = tuple(r for r in self.ranks if r not in there)
            if absent:
                grouped.setdefault(absent, []).append(key)
        for absent, lacking in grouped.items():
            first = lacking[0]
            tasks = [self.by_rank[rank][first] for rank in holders[first]]
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            yield Finding(
                "collective_missing",
                "deadlock",
                f"{_who(holders[first])} {_verb(tasks)} in {_title(tasks[0])} of communicator "
                f"{self.name!r}{more}, and {_who(absent)} never {_answer(tasks[0], absent)}: "
                "the others wait for ever",
                tuple(t.name for t in tasks),
                fix=f"add its part on {_who(absent)}, or take it out on {_who(holders[first])}",
            )

    def _mismatches(self) -> Iterator[Finding]:
        """Parts that belong together and want different things."""
        first, *others = self.ranks
        for key, task in self.by_rank.get(first, {}).items():
            for rank in others:
                other = self.by_rank.get(rank, {}).get(key)
                if other is None:
                    continue
                text = _difference(task, other, self.ranks)
                if text:
                    yield Finding(
                        "collective_mismatch",
                        "deadlock",
                        f"{task.name!r} on rank {first} and {other.name!r} on rank {rank} of "
                        f"communicator {self.name!r} do not fit: {text}",
                        (task.name, other.name),
                        fix="give all ranks the same collective, sizes and reduction",
                    )
                    break

    def _in_order(self, rank: int) -> list[tuple[Key, Task]]:
        own = self.by_rank.get(rank, {})
        return sorted(own.items(), key=lambda item: self.order.position[item[1].id])

    def _unordered(self, tasks: Sequence[tuple[Key, Task]]) -> Iterator[Finding]:
        for (_, a), (_, b) in pairwise(tasks):
            if not self.order.ordered(a.id, b.id):
                yield Finding(
                    "collective_order",
                    "deadlock",
                    f"nothing orders the collectives {a.name!r} and {b.name!r} of {self.name!r}",
                    (a.name, b.name),
                    fix=sync_fix(a.name, b.name, "control"),
                    missing=self.order.missing(a.id, b.id),
                )

    def _differing(self, lists: dict[int, list[tuple[Key, Task]]]) -> Iterator[Finding]:
        first, *others = self.ranks
        for rank in others:
            pairs = zip(lists[first], lists[rank], strict=True)
            swapped = next(((a, b) for a, b in pairs if a[0] != b[0]), None)
            if swapped is not None:
                (_, one), (_, two) = swapped
                yield Finding(
                    "collective_order",
                    "deadlock",
                    f"rank {first} comes to {one.name!r} where rank {rank} comes to "
                    f"{two.name!r} in communicator {self.name!r}",
                    (one.name, two.name),
                    fix="bring the collectives into one order on all ranks",
                )


def _difference(one: Task, two: Task, ranks: tuple[int, ...]) -> str:
    if one.op_type in POINT_TO_POINT or two.op_type in POINT_TO_POINT:
        if len(ranks) != 2:
            return f"a {one.op_type} joins two ranks, and the communicator has {len(ranks)}"
        if {one.op_type, two.op_type} != set(POINT_TO_POINT):
            return f"one must be a Send and the other a Recv, both are {one.op_type or 'none'}"
    elif one.op_type != two.op_type:
        return f"{one.op_type or 'no op'} against {two.op_type or 'no op'}"
    if one.signature != two.signature:
        return f"{one.signature or 'nothing said'} against {two.signature or 'nothing said'}"
    return ""


def _who(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:6])) + (", ..." if len(ranks) > 6 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _title(task: Task) -> str:
    kind = f"{task.op_type} " if task.op_type else ""
    return f"{kind}{shared_name(task.name, task.rank)!r}"


def _verb(tasks: Sequence[Task]) -> str:
    return "takes part" if len(tasks) == 1 else "take part"


def _answer(task: Task, absent: Sequence[int]) -> str:
    one = len(absent) == 1
    if task.op_type == "Send":
        return "receives what is sent" if one else "receive what is sent"
    if task.op_type == "Recv":
        return "sends what is waited for" if one else "send what is waited for"
    return "does" if one else "do"
