"""Collectives: every rank must meet its partners in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore, shared_name

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule, Task


def check_collectives(schedule: Schedule, order: HappensBefore) -> Iterator[Finding]:
    """One order per communicator, the same on every rank, and enforced there."""
    parts: dict[str, dict[int, list[Task]]] = {}
    for task in schedule.tasks:
        if task.communicator:
            parts.setdefault(task.communicator, {}).setdefault(task.rank, []).append(task)
    ranks_of = {c.name: c.ranks for c in schedule.communicators}
    for name, by_rank in parts.items():
        if name not in ranks_of:
            text = f"no communicator {name!r} is declared"
            yield Finding("collective_order", "deadlock", text)
            continue
        yield from _check_ranks(name, by_rank, ranks_of[name], order)


def _check_ranks(
    name: str, by_rank: dict[int, list[Task]], ranks: tuple[int, ...], order: HappensBefore
) -> Iterator[Finding]:
    strange = sorted(set(by_rank) - set(ranks))
    if strange:
        text = f"rank {strange[0]} takes part in communicator {name!r} and is no member"
        yield Finding("collective_order", "deadlock", text)
    lists: dict[int, list[str]] = {}
    for rank in ranks:
        tasks = sorted(by_rank.get(rank, ()), key=lambda t: order.position[t.id])
        lists[rank] = [shared_name(t.name, rank) for t in tasks]
        if order.deadlocks:
            continue
        for a, b in pairwise(tasks):
            if not order.ordered(a.id, b.id):
                yield Finding(
                    "collective_order",
                    "deadlock",
                    f"nothing orders the collectives {a.name!r} and {b.name!r} of {name!r}",
                    (a.name, b.name),
                    fix=sync_fix(a.name, b.name, "control"),
                    missing=order.missing(a.id, b.id),
                )
    first, *others = ranks
    for rank in others:
        if order.deadlocks or lists[rank] == lists[first]:
            continue
        pairs = zip([*lists[first], ""], [*lists[rank], ""], strict=False)
        one, two = next(((a, b) for a, b in pairs if a != b), ("", ""))
        yield Finding(
            "collective_order",
            "deadlock",
            f"rank {first} comes to {one or 'nothing more'!r} where rank {rank} comes to "
            f"{two or 'nothing more'!r} in communicator {name!r}",
            (one, two),
            fix="bring the collectives into one order on all ranks",
        )
