"""What passes may know of hardware and of simulation; the driver hands both in.

`Target` answers for one op or task alone; `Evaluator` runs a whole schedule. They are
implemented by ``gecompiler.backends``, which passes do not import.
"""

from __future__ import annotations

from typing import Protocol

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand, Limits, Schedule
from gecompiler.ir.timeline import Timeline


class Target(Protocol):
    """A device as a pass sees it."""

    @property
    def name(self) -> str:
        """The profile's name."""

    @property
    def limits(self) -> Limits:
        """Streams, events, memory and cores."""

    @property
    def task_gap_us(self) -> float:
        """Time between two tasks of one stream."""

    @property
    def event_us(self) -> float:
        """Time from a task's end to the start of a task of another stream waiting for it."""

    def demand(self, graph: Graph, op: Op) -> Demand:
        """What the op asks of the device; all shapes must be bound."""

    def alone_us(self, demand: Demand) -> float:
        """How long a task takes with nothing beside it."""

    def engine(self, op: Op) -> str:
        """GE's engine for the op: ``AIcoreEngine``, ``VectorEngine``, ``DNN_HCCL``, ..."""

    def capacities(self) -> dict[str, float]:
        """Units of work per microsecond of each resource: hbm, l2, cube, vector, links."""

    def work(self, demand: Demand) -> dict[str, float]:
        """The task's work on each resource, in the units of `capacities`."""


class Evaluator(Protocol):
    """Runs a schedule on a simulated device."""

    def __call__(self, schedule: Schedule) -> Timeline:
        """The timeline; the same for the same schedule."""
