"""Whose content a tensor is: versions of memory, and who must be done before whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Buffer, Schedule

FILLED = ("input", "weight", "state")
"""Kinds of memory that may be filled before the run."""


@dataclass
class Version:
    """What one task writes to one place, or what lies there from the start (writer None).

    Views of it belong to it. ``over`` is the version that it overwrites by intent.
    """

    buffer: Buffer
    writer: int | None
    readers: list[int] = field(default_factory=list)
    over: Version | None = None
    lasting: bool = False
    """Whether the content must still be there after the run."""
    successor: str | None = None
    """For the input side of a state: the tensor that alone may overwrite it."""


class Versions:
    """All versions of a schedule; ``findings`` tells of tensors that make no sense."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.findings: list[Finding] = []
        self._writer: dict[str, int] = {}
        for task in schedule.tasks:
            for tensor in dict.fromkeys(task.writes):
                other = self._writer.setdefault(tensor, task.id)
                if other != task.id:
                    self._add("written_twice", tensor, other, task.id)
        self.of: dict[str, Version] = {}
        """The version that each tensor's content is."""
        self.all: list[Version] = []
        for buffer in schedule.buffers:
            self._version(buffer)
        for task in schedule.tasks:
            for tensor in dict.fromkeys(task.reads):
                self.of[tensor].readers.append(task.id)
        for state in schedule.states:
            if state.output in self.of:
                self.of[state.output].lasting = True
            if state.input in self.of:
                self.of[state.input].successor = state.output
        self._check_filled()

    def _version(self, buffer: Buffer) -> None:
        """The version of a buffer, after those of what it is an alias of."""
        chain: list[Buffer] = []
        at: Buffer | None = buffer
        while at is not None and at.tensor not in self.of:
            chain.append(at)
            at = None if at.alias_of is None else self._schedule.buffer_of[at.alias_of]
        for item in reversed(chain):
            base = None if item.alias_of is None else self.of[item.alias_of]
            writer = self._writer.get(item.tensor)
            if base is not None and writer in (None, base.writer):
                self.of[item.tensor] = base
                base.lasting |= item.kind in ("output", "weight")
                self._check_view(item, base)
                continue
            version = Version(item, writer, over=base)
            version.lasting = item.kind in ("output", "weight")
            self.of[item.tensor] = version
            self.all.append(version)

    def _check_view(self, view: Buffer, base: Version) -> None:
        own = base.buffer
        inside = own.offset <= view.offset
        inside &= view.offset + view.bytes <= own.offset + own.bytes
        if view.bytes and not (inside and view.rank == own.rank):
            self.findings.append(
                Finding(
                    "moved_view",
                    "race",
                    f"{view.tensor!r} is a view of {own.tensor!r} and lies outside of it",
                    tensor=view.tensor,
                    address=(view.offset, view.offset + view.bytes),
                    fix=f"put {view.tensor!r} at offset {own.offset}",
                )
            )

    def _check_filled(self) -> None:
        for version in self.all:
            wanted = version.readers or version.buffer.kind == "output" or version.lasting
            if version.writer is None and version.buffer.kind not in FILLED and wanted:
                tensor = version.buffer.tensor
                names = tuple(self._schedule.tasks[t].name for t in version.readers[:1])
                self.findings.append(
                    Finding("unwritten", "race", f"no task writes {tensor!r}", names, tensor)
                )

    def _add(self, code: str, tensor: str, *tasks: int) -> None:
        names = tuple(self._schedule.tasks[t].name for t in tasks)
        text = f"{' and '.join(repr(n) for n in names)} both write {tensor!r}"
        self.findings.append(Finding(code, "race", text, names, tensor))


def check_dependencies(
    schedule: Schedule, versions: Versions, order: HappensBefore
) -> Iterator[Finding]:
    """Every read comes after the write, and every demanded order is kept."""
    tasks = schedule.tasks
    for task in tasks:
        for tensor in dict.fromkeys(task.reads):
            writer = versions.of[tensor].writer
            if writer is None or writer == task.id or order.ordered(writer, task.id):
                continue
            names = (tasks[writer].name, task.name)
            yield Finding(
                "missing_order",
                "race",
                f"{names[1]!r} reads {tensor!r}, and nothing makes it wait for "
                f"{names[0]!r}, which writes it",
                names,
                tensor,
                fix=_fix(writer, task.id, "data_ready", schedule, order),
                missing=order.missing(writer, task.id),
            )
    for control in schedule.controls:
        if not order.ordered(control.producer, control.consumer):
            names = (tasks[control.producer].name, tasks[control.consumer].name)
            who = "the user" if control.origin == "user" else "the graph"
            yield Finding(
                "missing_order",
                "race",
                f"{who} wants {names[1]!r} after {names[0]!r}, and nothing makes it wait",
                names,
                fix=_fix(control.producer, control.consumer, "control", schedule, order),
                missing=order.missing(control.producer, control.consumer),
            )


def _fix(before: int, after: int, kind: str, schedule: Schedule, order: HappensBefore) -> str:
    one, two = schedule.tasks[before], schedule.tasks[after]
    if before != after and not order.ordered(after, before):
        return sync_fix(one.name, two.name, kind)
    if one.stream == two.stream:
        return f"exchange {one.name!r} and {two.name!r}, which run the other way round"
    turned = f"take out what makes {one.name!r} wait for {two.name!r}"
    wait = next((e for e in schedule.waits.get(before, ()) if e.producer == after), None)
    if wait is not None:
        turned = f"take out the wait of {one.name!r} for {two.name!r} (event {wait.event_id})"
    return f"{turned}, and {sync_fix(one.name, two.name, kind)}"
