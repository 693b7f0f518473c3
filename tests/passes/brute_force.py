"""Whether a schedule is safe, the slow way: the full closure, and every pair of uses of memory."""

from __future__ import annotations

import random
from itertools import combinations

from gecompiler.ir.schedule import Buffer, Schedule


def closure(schedule: Schedule) -> list[list[bool]]:
    """before[a][b]: stream order and events lead from a to b (Warshall)."""
    n = len(schedule.tasks)
    before = [[False] * n for _ in range(n)]
    for tasks in schedule.streams.values():
        for a, b in combinations(tasks, 2):
            before[a.id][b.id] = True
    for event in schedule.events:
        before[event.producer][event.consumer] = True
    for k in range(n):
        for i in range(n):
            if before[i][k]:
                for j in range(n):
                    before[i][j] = before[i][j] or before[k][j]
    return before


def is_safe(schedule: Schedule) -> bool:
    """The verdict on order, memory and event ids (not on the device's limits)."""
    before = closure(schedule)
    if any(before[i][i] for i in range(len(before))):
        return False
    model = _Model(schedule)
    return (
        model.sane
        and _reads_ordered(model, before)
        and all(before[c.producer][c.consumer] for c in schedule.controls)
        and _memory_ordered(model, before)
        and _events_ordered(schedule, before)
    )


class _Model:
    """Tensors grouped by the content they stand for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.writers: dict[str, set[int]] = {b.tensor: set() for b in schedule.buffers}
        self.readers: dict[str, set[int]] = {b.tensor: set() for b in schedule.buffers}
        for task in schedule.tasks:
            for t in task.writes:
                self.writers[t].add(task.id)
            for t in task.reads:
                self.readers[t].add(task.id)
        self.content = {b.tensor: self._content(b) for b in schedule.buffers}
        self.members: dict[str, list[Buffer]] = {}
        for b in schedule.buffers:
            self.members.setdefault(self.content[b.tensor], []).append(b)
        self.sane = self._sane()

    def _content(self, buffer: Buffer) -> str:
        """The tensor that stands for this content: up the aliases while it is only a view."""
        while buffer.alias_of is not None:
            base = self.schedule.buffer_of[buffer.alias_of]
            mine = self.writers[buffer.tensor]
            if mine and mine != self.writers[self._content(base)]:
                break
            buffer = base
        return buffer.tensor

    def _sane(self) -> bool:
        states = {s.input for s in self.schedule.states} | {s.output for s in self.schedule.states}
        for name, members in self.members.items():
            root = self.schedule.buffer_of[name]
            if len(self.writers[name]) > 1 or any(len(self.writers[m.tensor]) > 1 for m in members):
                return False
            for m in members:
                inside = root.offset <= m.offset and m.offset + m.bytes <= root.offset + root.bytes
                if m.bytes and not inside:
                    return False
            used = any(self.readers[m.tensor] for m in members)
            used = used or any(m.kind == "output" or m.tensor in states for m in members)
            filled = root.kind in ("input", "weight", "state")
            if used and not self.writers[name] and not filled:
                return False
        return True

    def writer(self, content: str) -> int | None:
        return next(iter(self.writers[content]), None)

    def users(self, content: str) -> set[int]:
        found = set(self.writers[content])
        for m in self.members[content]:
            found |= self.readers[m.tensor]
        return found

    def lasts(self, content: str) -> bool:
        outs = {s.output for s in self.schedule.states}
        return any(
            m.kind in ("output", "weight") or m.tensor in outs for m in self.members[content]
        )

    def heir(self, content: str) -> str | None:
        """The content that alone may overwrite this one: the output side of its state."""
        for s in self.schedule.states:
            if any(m.tensor == s.input for m in self.members[content]):
                return self.content[s.output]
        return None


def _reads_ordered(model: _Model, before: list[list[bool]]) -> bool:
    for content, members in model.members.items():
        writer = model.writer(content)
        for m in members:
            for reader in model.readers[m.tensor]:
                if writer is not None and reader != writer and not before[writer][reader]:
                    return False
    return True


def _memory_ordered(model: _Model, before: list[list[bool]]) -> bool:
    buffers = model.schedule.buffer_of
    return all(
        _follows(model, a, b, before) or _follows(model, b, a, before)
        for a, b in combinations(model.members, 2)
        if _overlap(buffers[a], buffers[b])
    )


def _overlap(a: Buffer, b: Buffer) -> bool:
    return max(a.offset, b.offset) < min(a.offset + a.bytes, b.offset + b.bytes)


def _follows(model: _Model, old: str, new: str, before: list[list[bool]]) -> bool:
    """Whether ``new`` is surely written after all use of ``old``, and may replace it."""
    writer = model.writer(new)
    if writer is None or model.lasts(old):
        return False
    alias = model.schedule.buffer_of[new].alias_of
    in_place = alias is not None and model.content[alias] == old
    heir = model.heir(old)
    if heir is not None and not (in_place and heir == new):
        return False
    whole = model.schedule.buffer_of[old].alias_of
    if whole is not None and model.content[whole] == new:  # a part of it, gathered in place
        outer, part = model.schedule.buffer_of[new], model.schedule.buffer_of[old]
        end = part.offset + part.bytes
        in_place |= outer.offset <= part.offset and end <= outer.offset + outer.bytes
    return all(before[u][writer] or (u == writer and in_place) for u in model.users(old))


def _events_ordered(schedule: Schedule, before: list[list[bool]]) -> bool:
    for a, b in combinations(schedule.events, 2):
        if a.event_id != b.event_id or a.producer == b.producer:
            continue
        over = {e.consumer for e in schedule.events if _same(e, a)}
        back = {e.consumer for e in schedule.events if _same(e, b)}
        forth = all(c == b.producer or before[c][b.producer] for c in over)
        if not forth and not all(c == a.producer or before[c][a.producer] for c in back):
            return False
    return True


def _same(a, b) -> bool:  # type: ignore[no-untyped-def]
    return a.event_id == b.event_id and a.producer == b.producer


def run_randomly(schedule: Schedule, rng: random.Random) -> bool:
    """Runs the tasks in some order that streams and events allow, with contents for values.

    True when every task reads what its tensors are meant to hold, and outputs, weights and
    state hold it at the end. Memory is a byte map of (content, byte of it).
    """
    model = _Model(schedule)
    memory: dict[int, tuple[str, int]] = {}
    for b in schedule.buffers:
        if model.content[b.tensor] == b.tensor and model.writer(b.tensor) is None:
            _store(memory, b)
    queues = [list(q) for q in schedule.streams.values()]
    running: list[int] = []
    done: set[int] = set()
    while any(queues) or running:
        ready = [
            q
            for q in queues
            if q
            and not any(schedule.tasks[r].stream == q[0].stream for r in running)
            and all(e.producer in done for e in schedule.waits.get(q[0].id, ()))
        ]
        if ready and (not running or rng.random() < 0.6):
            task = rng.choice(ready).pop(0)
            if not all(_holds(memory, schedule.buffer_of[t], model) for t in task.reads):
                return False
            running.append(task.id)
            continue
        if not running:
            return False
        task = schedule.tasks[running.pop(rng.randrange(len(running)))]
        for t in task.writes:
            if model.content[t] == t:
                _store(memory, schedule.buffer_of[t])
        done.add(task.id)
    ends = [b for b in schedule.buffers if model.lasts(model.content[b.tensor])]
    return all(_holds(memory, b, model) for b in ends)


def _store(memory: dict[int, tuple[str, int]], buffer: Buffer) -> None:
    for i in range(buffer.bytes):
        memory[buffer.offset + i] = (buffer.tensor, i)


def _holds(memory: dict[int, tuple[str, int]], buffer: Buffer, model: _Model) -> bool:
    content = model.content[buffer.tensor]
    shift = buffer.offset - model.schedule.buffer_of[content].offset
    return all(memory.get(buffer.offset + i) == (content, shift + i) for i in range(buffer.bytes))
