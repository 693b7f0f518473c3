"""The graph engine's ladder of rules that gives units their streams.

Rules in order, each for the units the ones before left over (CANN GE,
``logical_stream_allocator.cc``): the user's label, an independent engine, an internal label,
reuse of a predecessor's stream, a stream of the unit's engine. Where GE leaves a choice to the
order of pointers, the unit that comes first wins here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gecompiler.passes.streams.engines import ENGINES, UNKNOWN, Engine

Key = TypeVar("Key", str, tuple[str, str])


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed as one: a task, or in GE's words a cluster."""

    engine: str
    label: str = ""
    user_label: str = ""
    force_attach: bool = False
    """Rides on any predecessor's stream, whoever else has a claim to it."""

    @property
    def key(self) -> str:
        """The label that counts: the user's, else the internal one."""
        return self.user_label or self.label


@dataclass
class Ladder:
    """Units in list order, their data edges, and how many streams an engine may have.

    ``max_parallel`` (per engine, 1 where not given) is GE's ``streamMaxParallelNum``.
    ``memory_priority`` drops the sibling rule.
    """

    units: Sequence[Unit]
    preds: Sequence[Sequence[int]]
    succs: Sequence[Sequence[int]]
    max_parallel: Mapping[str, int] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)
    memory_priority: bool = False

    def __post_init__(self) -> None:
        self._stream: list[int | None] = [None] * len(self.units)
        self._rule: list[str] = [""] * len(self.units)
        self._next = 0

    def run(self) -> tuple[list[int], list[str]]:
        """The stream of each unit, and the rule that gave it. Ids need not be dense."""
        self._by_label()
        self._independent()
        self._by_dependency()
        return [s if s is not None else 0 for s in self._stream], self._rule

    def _engine(self, unit: int) -> Engine:
        return self.engines.get(self.units[unit].engine, UNKNOWN)

    def _by_label(self) -> None:
        streams: dict[str, int] = {}
        for i, unit in enumerate(self.units):
            if unit.key:
                self._give(i, unit.key, streams, f"label {unit.key!r}")

    def _independent(self) -> None:
        streams: dict[tuple[str, str], int] = {}
        for i, unit in enumerate(self.units):
            if self._engine(i).independent and not unit.user_label:
                key = (unit.engine, unit.key)
                self._give(i, key, streams, f"independent engine {unit.engine}")

    def _give(self, unit: int, key: Key, streams: dict[Key, int], rule: str) -> None:
        if key not in streams:
            streams[key] = self._next
            self._next += 1
        self._stream[unit], self._rule[unit] = streams[key], rule

    def _by_dependency(self) -> None:
        """Chains of reuse first, under numbers of each engine's own; then their final ids."""
        root: dict[int, int] = {}
        slot: dict[int, tuple[str, int]] = {}
        counter: dict[str, int] = {}

        def open_slot(unit: int) -> None:
            engine = self.units[unit].engine
            number = counter.get(engine, 0)
            slot[unit] = (engine, number)
            counter[engine] = (number + 1) % max(1, self.max_parallel.get(engine, 1))
            self._rule[unit] = f"engine {engine}"

        for i in range(len(self.units)):
            if self._stream[i] is not None or i in slot:
                continue
            donor = self._donor(i, root)
            if donor is None:
                open_slot(i)
                continue
            if donor not in slot and donor not in root:
                open_slot(donor)
            root[i] = root.get(donor, donor)
            self._rule[i] = "reuses its predecessor's stream"
        base: dict[str, int] = {}
        for engine in sorted({e for e, _ in slot.values()}):
            base[engine] = self._next
            self._next += 1 + max(n for e, n in slot.values() if e == engine)
        for i, (engine, number) in slot.items():
            self._stream[i] = base[engine] + number
        for i, first in root.items():
            self._stream[i] = self._stream[first]

    def _donor(self, unit: int, root: Mapping[int, int]) -> int | None:
        found = [p for p in self.preds[unit] if self._may_reuse(unit, p, root)]
        return min(found, key=lambda p: (self._engine(p).cost, p), default=None)

    def _may_reuse(self, unit: int, pred: int, root: Mapping[int, int]) -> bool:
        mine, other = self.units[unit], self.units[pred]
        if self._engine(pred).independent or other.key:
            return False
        if mine.force_attach:
            return True
        if not self.memory_priority and any(
            s != unit and self.units[s].engine == other.engine for s in self.succs[pred]
        ):
            return False  # the sibling of the predecessor's own engine has the better claim
        reused = root.get(pred)
        follows = reused is not None and self.units[reused].engine == mine.engine
        return mine.engine == other.engine or self._engine(unit).attach or follows
