"""A task in the making: what rides with it, what it reads and writes, what it asks for."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand, Task, TaskKind


class Draft:
    """A task in the making."""

    def __init__(self, main: Op, writes: tuple[str, ...]) -> None:
        self.main = main
        self.kind: TaskKind = "kernel"
        self.engine = ""
        self.communicator = ""
        self.demand = Demand()
        self.before: list[str] = []
        self.after: list[str] = []
        self.last: list[str] = []
        self.reads: tuple[str, ...] = ()
        self.writes: list[str] = list(writes)

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of its ops, in the order in which they run."""
        return (*self.before, self.main.name, *self.after, *self.last)

    def task(self, index: int) -> Task:
        """The task at that place of the order."""
        main = self.main
        return Task(
            id=index,
            name=main.name,
            kind=self.kind,
            stream=0,
            order=index,
            ops=self.ops,
            op_type=main.op_type,
            group=main.info.group,
            reads=self.reads,
            writes=tuple(self.writes),
            demand=self.demand,
            communicator=self.communicator,
        )
