"""What the device has of each countable thing, and event ids used again."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import pairwise
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule


def check_limits(schedule: Schedule) -> Iterator[Finding]:
    """Streams, tasks a stream, event ids, memory and cores within the device's limits."""
    limits = schedule.limits
    streams: dict[int, int] = {}
    for rank, stream in schedule.streams:
        streams[rank] = streams.get(rank, 0) + 1
        count = len(schedule.streams[rank, stream])
        if count > limits.max_tasks_per_stream:
            text = f"{count} tasks are on stream {stream}"
            yield _limit(text, limits.max_tasks_per_stream, "spread them over more streams")
    for rank, count in streams.items():
        if count > limits.max_streams:
            text = f"{count} streams are used on rank {rank}"
            yield _limit(text, limits.max_streams, f"num_streams={limits.max_streams}")
    if schedule.arena_bytes > limits.memory_bytes:
        used = f"{schedule.arena_bytes} bytes of memory are used (most by {_largest(schedule)})"
        yield _limit(used, limits.memory_bytes, "a smaller batch or sequence, or more memory")
    yield from _check_each(schedule)


def _check_each(schedule: Schedule) -> Iterator[Finding]:
    limits = schedule.limits
    for task in schedule.tasks:
        for wanted, there, kind in (
            (task.demand.cube_cores, limits.cube_cores, "cube"),
            (task.demand.vector_cores, limits.vector_cores, "vector"),
        ):
            if wanted > there:
                text = f"task {task.name!r} wants {wanted} {kind} cores"
                cores = f'{{"{task.name}": {{"{kind}": {there}}}}}'
                yield _limit(text, there, f"limit_core_num({cores})")
    notify = schedule.sync_primitive == "notify"
    ids = limits.max_notifies if notify else limits.max_events
    for event in schedule.events:
        if not 0 <= event.event_id < ids:
            name = _name(schedule, event.producer)
            text = f"{'a notify' if notify else 'an event'} of {name} has the id {event.event_id}"
            fix = "give it the id of one whose waits are over, or use fewer streams"
            yield _limit(text, ids, f"{fix} (ids are numbered from 0)")


def _largest(schedule: Schedule, count: int = 3) -> str:
    """The tensors that take most, views of others left out."""
    own = [b for b in schedule.buffers if b.alias_of is None]
    most = nsmallest(count, own, key=lambda b: (-b.bytes, b.tensor))
    return ", ".join(f"{b.tensor!r} {b.bytes}" for b in most) or "none"


def _limit(text: str, there: int, fix: str) -> Finding:
    return Finding("limit", "limit", f"{text}, the device has {there}", fix=fix)


def _name(schedule: Schedule, task: int) -> str:
    return repr(schedule.tasks[task].name) if 0 <= task < len(schedule.tasks) else f"task {task}"


def _check_shared_notifies(schedule: Schedule) -> Iterator[Finding]:
    waits: dict[tuple[int, int], int] = {}
    for event in schedule.events:
        first = waits.setdefault((event.producer, event.event_id), event.consumer)
        if first != event.consumer:
            names = (schedule.tasks[first].name, schedule.tasks[event.consumer].name)
            yield Finding(
                "event_reuse",
                "race",
                f"{names[0]!r} and {names[1]!r} both wait for notify {event.event_id} of "
                f"{schedule.tasks[event.producer].name!r}, which wakes one of them",
                names,
                fix="give each wait a notify of its own",
            )


def check_event_ids(schedule: Schedule, order: HappensBefore) -> Iterator[Finding]:
    """An id is recorded again only when every wait on its last record is over.

    A notify wakes one wait: two waits on one record have two of them.
    """
    if schedule.sync_primitive == "notify":
        yield from _check_shared_notifies(schedule)
    waits: dict[tuple[int, int], dict[int, list[int]]] = {}
    for event in schedule.events:
        key = (schedule.tasks[event.producer].rank, event.event_id)
        waits.setdefault(key, {}).setdefault(event.producer, []).append(event.consumer)
    for (_, event_id), records in waits.items():
        inorder = sorted(records, key=order.position.__getitem__)
        for first, again in pairwise(inorder):
            for consumer in records[first]:
                if consumer == again or order.ordered(consumer, again):
                    continue
                yield _reused(schedule, order, (first, consumer, again), event_id)


def _reused(
    schedule: Schedule, order: HappensBefore, tasks: tuple[int, int, int], event_id: int
) -> Finding:
    """The finding for a first record, its wait, and the record that comes too early."""
    first, consumer, again = tasks
    record, wait, name = (schedule.tasks[t].name for t in tasks)
    event = next(e for e in schedule.waits[consumer] if e.producer == first)
    fix = "give the event an id of its own"
    if not order.ordered(again, consumer):
        fix += ", or " + sync_fix(wait, name, "control")
    return Finding(
        "event_reuse",
        "race",
        f"{name!r} records event {event_id} again, while {wait!r} may still wait for its "
        f"record by {record!r}",
        (wait, name),
        tensor=event.tensors[0] if event.tensors else "",
        fix=fix,
        missing=order.missing(consumer, again),
    )
