"""Memory that is used again: everyone who used it before must be done.

All versions are laid into memory in the order in which they are written; each is compared with
those it replaces. That is enough: if every version waits for all users of the ones just before
it at the same address, then, order being transitive, it waits for those before them as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gecompiler.ir.schedule_verify.finding import Finding, sync_fix
from gecompiler.ir.schedule_verify.order import HappensBefore
from gecompiler.ir.schedule_verify.tensors import Version, Versions

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule


def check_memory(schedule: Schedule, versions: Versions, order: HappensBefore) -> Iterator[Finding]:
    """Races on memory, and content that is lost; every address within the arena."""
    for buffer in schedule.buffers:
        end = buffer.offset + buffer.bytes
        if buffer.bytes and not 0 <= buffer.offset <= end <= schedule.arena_bytes:
            yield Finding(
                "limit",
                "limit",
                f"{buffer.tensor!r} lies at [{buffer.offset}, {end}) of an arena of "
                f"{schedule.arena_bytes} bytes",
                tensor=buffer.tensor,
                address=(buffer.offset, end),
                fix=_elsewhere(buffer.tensor),
            )
    memory: dict[int, _Memory] = {}
    for version in sorted(versions.all, key=lambda v: _when(v, order)):
        if version.buffer.bytes <= 0:
            continue
        for before in memory.setdefault(version.buffer.rank, _Memory()).lay(version):
            finding = _clash(before, version, schedule, order)
            if finding is not None:
                yield finding


def _when(version: Version, order: HappensBefore) -> int:
    return -1 if version.writer is None else order.position[version.writer]


def _clash(old: Version, new: Version, schedule: Schedule, order: HappensBefore) -> Finding | None:
    """What is wrong with ``new`` taking memory of ``old``, None when all is well."""
    low = max(old.buffer.offset, new.buffer.offset)
    high = min(old.buffer.offset + old.buffer.bytes, new.buffer.offset + new.buffer.bytes)
    names = (old.buffer.tensor, new.buffer.tensor)
    writer = new.writer
    if writer is None:
        text = f"{names[0]!r} and {names[1]!r} are both there from the start and share memory"
        return Finding("race", "race", text, (), names[0], (low, high), _elsewhere(names[1]))
    own = schedule.tasks[writer].name
    in_place = new.over is old or _gathers(new, old)
    if old.lasting or (old.successor is not None and not _succeeds(new, old, schedule)):
        text = f"{own!r} writes {names[1]!r} over {names[0]!r}, which must outlive the run"
        return Finding(
            "overwritten", "race", text, (own,), names[0], (low, high), _elsewhere(names[1])
        )
    users = old.readers if old.writer is None else [old.writer, *old.readers]
    for user in users:
        if order.ordered(user, writer) or (user == writer and in_place):
            continue
        name = schedule.tasks[user].name
        verb = "writes" if user == old.writer else "reads"
        text = f"{own!r} writes {names[1]!r} where {name!r} {verb} {names[0]!r}"
        late = user == writer or order.ordered(writer, user)
        fix = _elsewhere(names[1]) if late else sync_fix(name, own, "buffer_free")
        path = order.missing(user, writer)
        return Finding("race", "race", text, (name, own), names[0], (low, high), fix, path)
    return None


def _gathers(new: Version, old: Version) -> bool:
    """Whether ``old`` is by intent a part of ``new``, whose writer reads it where it lies."""
    low, high = new.buffer.offset, new.buffer.offset + new.buffer.bytes
    inside = low <= old.buffer.offset and old.buffer.offset + old.buffer.bytes <= high
    return old.over is new and inside


def _succeeds(new: Version, old: Version, schedule: Schedule) -> bool:
    """Whether ``new`` is the output side of the state whose input side is ``old``."""
    if new.over is not old or old.successor is None:
        return False
    tensor = old.successor
    while tensor != new.buffer.tensor:
        alias = schedule.buffer_of[tensor].alias_of
        if alias is None:
            return False
        tensor = alias
    return True


def _elsewhere(tensor: str) -> str:
    return f"give {tensor!r} another address"


class _Memory:
    """Which version each stretch of memory holds now: sorted starts, up to the next start."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._held: list[Version | None] = []

    def lay(self, version: Version) -> list[Version]:
        """Puts a version in its place; returns those it replaces, each once."""
        low, high = version.buffer.offset, version.buffer.offset + version.buffer.bytes
        first = self._cut(low)
        last = self._cut(high)
        held = self._held[first:last]
        self._starts[first:last] = [low]
        self._held[first:last] = [version]
        seen: dict[int, Version] = {id(v): v for v in held if v is not None}
        return list(seen.values())

    def _cut(self, at: int) -> int:
        """Makes a stretch begin at an address, and returns its index."""
        i = bisect_right(self._starts, at)
        if i and self._starts[i - 1] == at:
            return i - 1
        self._starts.insert(i, at)
        self._held.insert(i, self._held[i - 1] if i else None)
        return i
