"""Explaining a task of several cards: what it depends on there, and the names that find it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gecompiler.cards.own_ops import OwnOps
from gecompiler.explain import Explainer
from gecompiler.ir.errors import UsageError
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.rank_schedules import TemplateSchedule
from gecompiler.passes.rank_schedules.controlled import ControlledSchedule
from gecompiler.passes.rank_schedules.template import STRATEGY
from gecompiler.passes.scheduling.placement_log import Decided, reasons

if TYPE_CHECKING:
    from gecompiler.backends.collectives import Cost
    from gecompiler.backends.device import Device
    from gecompiler.cards.schedule import CardsResult


def cards_explainer(cards: CardsResult, device: Device) -> Explainer:
    """Explains the tasks of all ranks that were simulated."""
    names = local_names(cards)
    preds: list[list[int]] = []
    why: list[str] = []
    for rank in cards.ranks:
        part, base = cards.parts[cards.program.template_of[rank]], len(preds)
        preds += [[base + p for p in before] for before in part.synced.placement.graph.preds]
        why += reasons(_decided(part, _of_rank(cards.timeline, rank, base)))

    def cost_of(task: int) -> Cost:
        record = cards.schedule.tasks[task]
        part = cards.parts[cards.program.template_of[record.rank]]
        op = part.graph.op(names[task])
        return cards.cluster.at(record.rank).cost(part.graph, op)

    return Explainer(cards.schedule, cards.timeline, device, preds, why, cost_of)


def cards_matches(cards: CardsResult, name: str, rank: int | None = None) -> list[int]:
    """The ids of the tasks that a name stands for on one rank, in the order of their start.

    The name is a task's, or an op's, type, group or glob as in stream assignments; the rank that
    which is given, else the one on which the last of the tasks ends last. A rank that was not
    simulated is answered for by its like. UsageError for a name or rank that there is not.
    """
    asked = None if rank is None else _simulated(cards, rank)
    found = _by_task_name(cards, name) or _by_op(cards, name)
    spans = cards.timeline.spans
    here = [t for t in found if asked is None or spans[t].rank == asked]
    if not here:
        others = sorted({spans[t].rank for t in found})
        raise UsageError(
            f"rank {rank} has none; ranks that do: {', '.join(map(str, others))}",
            where=f"explain {name!r}",
            hint="leave --rank out for the rank on which it ends last",
        )
    last = max(here, key=lambda t: (spans[t].end_ns, -spans[t].rank))
    mine = [t for t in here if spans[t].rank == spans[last].rank]
    return sorted(mine, key=lambda t: (spans[t].start_ns, t))


def like_tasks(cards: CardsResult, task: int) -> list[int]:
    """The tasks of the same op and micro-batch on all ranks that have it, by rank."""
    names = local_names(cards)
    return [t for t, name in enumerate(names) if name == names[task]]


def local_names(cards: CardsResult) -> list[str]:
    """The names of all tasks in the schedules of their own ranks, by id."""
    parts = [cards.parts[cards.program.template_of[rank]] for rank in cards.ranks]
    return [task.name for part in parts for task in part.schedule.tasks]


def _simulated(cards: CardsResult, rank: int) -> int:
    """The rank that answers for one."""
    program = cards.program
    if not 0 <= rank < program.mesh.size:
        raise UsageError(
            f"there is no rank {rank}",
            where="--rank",
            hint=f"ranks are numbered 0 to {program.mesh.size - 1}",
        )
    if rank in cards.ranks:
        return rank
    return next(r for r in cards.ranks if program.template_of[r] == program.template_of[rank])


def _by_task_name(cards: CardsResult, name: str) -> list[int]:
    pairs = zip(cards.schedule.tasks, local_names(cards), strict=True)
    return [task.id for task, local in pairs if name in (task.name, local)]


def _by_op(cards: CardsResult, name: str) -> list[int]:
    control, one = cards.control, cards.one
    assert control is not None
    assert one is not None
    ops = OwnOps(control.whole, one, cards.shape)
    try:
        wanted = ops.find(name)
    except UsageError as error:
        raise UsageError(error.message, where=f"explain {name!r}", hint=error.hint) from None
    found: list[int] = []
    base = 0
    for rank in cards.ranks:
        part = cards.parts[cards.program.template_of[rank]]
        tasks = part.synced.placement.graph
        here = [op.name for op in part.graph.ops if not wanted.isdisjoint(ops.names(op))]
        ids = {tasks.riders[n] for n in here if n in tasks.riders}
        ids |= {t.id for t in tasks.tasks if not {t.name, *t.ops}.isdisjoint(here)}
        found += [base + task for task in sorted(ids)]
        base += len(tasks)
    if not found:
        raise UsageError(
            f"{name!r} needs no task: its value is known before the run",
            where=f"explain {name!r}",
            hint="name an op that computes something",
        )
    return found


def _of_rank(timeline: Timeline, rank: int, base: int) -> Timeline:
    """What one rank ran, its tasks numbered from 0."""
    own = [replace(s, task=s.task - base) for s in timeline.spans if s.rank == rank]
    return replace(timeline, spans=tuple(own), events=())


def _decided(part: TemplateSchedule, timeline: Timeline) -> Decided:
    if isinstance(part, ControlledSchedule):
        return replace(part.decided, timeline=timeline)
    return Decided(STRATEGY, part.synced, timeline, {}, {})
