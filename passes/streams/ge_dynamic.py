"""The graph engine's allocator for graphs of dynamic shapes: one stream per engine.

CANN GE, ``dynamic_stream_allocator.cc`` (behaviour only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.passes.streams.engines import ENGINES, UNKNOWN, Engine

OWNING = ("AIcoreEngine", "VectorEngine", "DNN_HCCL", "DSAEngine")
"""Engines that have a stream of their own."""

CPU, HCCL = "DNN_VM_AICPU", "DNN_HCCL"

FOREIGN = frozenset(
    ("DropOutGenMask", "DropOutDoMaskV3", "GetNext", "DynamicGetNext", "DynamicGetNextV2")
)
"""Ops of the control CPU that have a stream of their own in any case."""

ON_MAIN = frozenset(("Data", "Variable", "Const", "ConstPlaceHolder", "NetOutput", "FileConstant"))


@dataclass(frozen=True, slots=True)
class DynamicUnit:
    """An op: its engine, its type, the user's label, and whether it holds subgraphs."""

    engine: str
    op_type: str = ""
    label: str = ""
    has_subgraphs: bool = False


@dataclass
class DynamicAllocator:
    """Units in topological order. ``priority`` orders the engines' stream ids, lowest first.

    ``cpu_parallel`` is GE's ac_parallel_enable: work of the control CPU that waits for nothing
    of the other engines gets a stream.
    """

    units: Sequence[DynamicUnit]
    preds: Sequence[Sequence[int]]
    succs: Sequence[Sequence[int]]
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)
    priority: Mapping[str, int] = field(default_factory=dict)
    cpu_parallel: bool = False

    def run(self) -> list[int]:
        """The stream of each unit, dense from 0."""
        self._owner: list[str | None] = [self._owned(i) for i in range(len(self.units))]
        self._reuse()
        for i, unit in enumerate(self.units):
            if self._owner[i] is None and not self._engine(unit.engine).skip:
                self._owner[i] = unit.engine
        return self._number()

    def _engine(self, name: str) -> Engine:
        return self.engines.get(name, UNKNOWN)

    def _owned(self, unit: int) -> str | None:
        """The engine whose stream the unit is on from the start."""
        mine = self.units[unit]
        if mine.engine in OWNING:
            return mine.engine
        own = mine.engine == CPU and (
            self._cpu_is_free(unit) if self.cpu_parallel else mine.op_type in FOREIGN
        )
        return CPU if own else None

    def _cpu_is_free(self, unit: int) -> bool:
        """No inputs, or only such that do nothing, or none on whose stream it could ride."""
        before = self.preds[unit]
        idle = all(self._engine(self.units[p].engine).skip and not self.preds[p] for p in before)
        return idle or not any(self._lends(p, unit) for p in before)

    def _lends(self, pred: int, unit: int) -> bool:
        engine = self.units[pred].engine
        if engine not in OWNING or self._engine(engine).independent:
            return False
        return not any(s != unit and self.units[s].engine == engine for s in self.succs[pred])

    def _reuse(self) -> None:
        """Units without a stream ride on a neighbour's, predecessors first."""
        for i, unit in enumerate(self.units):
            if self._owner[i] is not None:
                continue
            for other in (*self.preds[i], *self.succs[i]):
                owner = self._owner[other]
                if owner is None or (unit.engine == CPU and owner == HCCL):
                    continue
                if owner == unit.engine or self._engine(unit.engine).attach:
                    self._owner[i] = owner
                    break

    def _number(self) -> list[int]:
        main = [self._on_main(i) for i in range(len(self.units))]
        used = {
            owner
            for i, owner in enumerate(self._owner)
            if owner is not None and not main[i] and not self.units[i].label
        }
        order = sorted(used, key=lambda e: (self.priority.get(e, self._engine(e).cost), e))
        ids = {engine: i for i, engine in enumerate(order)}
        labels = sorted({u.label for i, u in enumerate(self.units) if u.label and not main[i]})
        first = len(ids)
        found: list[int] = []
        for i, unit in enumerate(self.units):
            owner = self._owner[i]
            if main[i]:
                found.append(0)
            elif unit.label:
                found.append(first + labels.index(unit.label))
            else:
                found.append(0 if owner is None else ids[owner])
        return found

    def _on_main(self, unit: int) -> bool:
        mine = self.units[unit]
        return mine.has_subgraphs or mine.op_type in ON_MAIN
