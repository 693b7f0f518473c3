"""What both emitters need of a schedule: one order of issue, and whether its ops can be named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gecompiler.ir.errors import UsageError

if TYPE_CHECKING:
    from gecompiler.driver import Compilation
    from gecompiler.ir.schedule import Schedule, Task

SOC_VERSIONS: Mapping[str, str] = {
    "ascend910": "Ascend910A",
    "ascend910b": "Ascend910B1",
    "ascend910b2": "Ascend910B2",
    "ascend910b3": "Ascend910B3",
    "ascend910b4": "Ascend910B4",
    "ascend910c": "Ascend910_9391",
    "ascend310p": "Ascend310P3",
}
"""How the graph engine calls the devices that it compiles for."""


def soc_version(device: str) -> str:
    """The graph engine's name of a device; UsageError for one of another maker."""
    if device not in SOC_VERSIONS:
        raise cannot(
            f"the graph engine does not compile for {device}",
            f"choose one of its devices: {', '.join(SOC_VERSIONS)}",
        )
    return SOC_VERSIONS[device]


def cannot(message: str, hint: str) -> UsageError:
    """The error for a placement that the graph engine cannot be asked for."""
    return UsageError(message, where="--emit", hint=hint)


def require_plain(compilation: Compilation) -> Schedule:
    """The schedule; UsageError where the graph engine has no way to be asked for it."""
    schedule = compilation.result.schedule
    if compilation.findings:
        raise cannot(
            f"the schedule is not safe: {compilation.findings[0].message}",
            compilation.findings[0].fix or "see the report",
        )
    if compilation.result.micro_batches:
        raise cannot(
            f"the batch is split into {len(compilation.result.micro_batches)} micro-batches, "
            "which the graph engine does not do",
            "choose another strategy (--strategy), or split the batch in the model",
        )
    ahead = next((t for t in schedule.tasks if t.kind in ("load", "store")), None)
    if ahead is not None:
        raise cannot(
            f"{ahead.name!r} moves part of an op's bytes in a task of its own, which the graph "
            "engine does not do",
            "choose another strategy than compute_overlap (--strategy)",
        )
    shape = None if compilation.cards is None else compilation.cards.shape
    if shape is not None and shape.micro_batches > 1:
        raise cannot(
            f"the batch goes through the cards in {shape.micro_batches} micro-batches, each of "
            "which is a graph of its own to the graph engine",
            "use --micro-batches 1",
        )
    return schedule


def issue_order(schedule: Schedule) -> list[Task]:
    """All tasks, each after those it waits for, changing streams as rarely as that allows."""
    queues = {key: list(reversed(tasks)) for key, tasks in schedule.streams.items()}
    done: set[int] = set()
    found: list[Task] = []
    while any(queues.values()):
        for queue in queues.values():
            while queue and all(e.producer in done for e in schedule.waits.get(queue[-1].id, ())):
                found.append(queue.pop())
                done.add(found[-1].id)
    return found
