"""The memory of a run, and what starting and ending a task does to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from gecompiler.backends.execution.arena import Arena
from gecompiler.backends.execution.own_ops import VIEW_OPS
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.backends.execution.run_op import run_op
from gecompiler.ir.errors import MissingDataError, ModelError, ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.types import DType, TensorType


def require_data(graph: Graph) -> None:
    """Raises MissingDataError for a constant that has no data anywhere."""
    for name, constant in graph.constants.items():
        if constant.data is None and constant.source is None:
            load_constant(graph, name)


def load_constant(graph: Graph, name: str) -> Value:
    """The constant's array; MissingDataError that names it when there is none."""
    try:
        return graph.constants[name].array()
    except MissingDataError as error:
        where = f"constant {name!r}" + (f" ({error.where})" if error.where else "")
        raise MissingDataError(error.message, where=where, hint=error.hint) from None


class Machine:
    """Device memory and what lies beside it, while a schedule runs.

    A tensor with a buffer lies in the arena at its address; strings, sequences and whatever has
    no buffer lie in a dict. ``start`` reads a task's inputs and computes, ``end`` publishes.
    """

    def __init__(self, graph: Graph, schedule: Schedule, inputs: Mapping[str, Value]) -> None:
        self.graph = graph
        self.schedule = schedule
        self.arena = Arena(schedule.arena_bytes, schedule.model)
        self._outside: dict[str, Value] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._running: dict[int, dict[str, Value]] = {}
        stores = [t for t in schedule.tasks if t.kind == "store" and not (t.ops or t.reads)]
        self._stored = {name for task in stores for name in task.writes}
        """What a task of its own publishes: until then it lies on chip."""
        self._on_chip: dict[str, Value] = {}
        for name, value in inputs.items():
            self._publish(name, value, f"input {name!r}")
        for name in graph.constants:
            if name in schedule.buffer_of:
                self._publish(name, load_constant(graph, name), f"constant {name!r}")

    def start(self, task: Task) -> None:
        """Reads what the task reads and computes it; nothing is visible to others yet."""
        made: dict[str, Value] = {}
        for name in task.ops:
            op = self.graph.op(name)
            made.update(self._run(op, made, f"task {task.name!r}"))
        if task.kind == "store" and self._stored.issuperset(task.writes):
            made = {name: self._from_chip(name, task) for name in task.writes}
        elif not task.ops and task.kind in ("copy", "store"):
            pairs = zip(task.writes, task.reads, strict=False)
            made = {target: self.read(source, f"task {task.name!r}") for target, source in pairs}
        self._running[task.id] = {v: self._detached(v, value) for v, value in made.items()}

    def end(self, task: Task) -> None:
        """Publishes what the task made."""
        made = self._running.pop(task.id)
        for name, value in made.items():
            if name in self._stored and task.kind != "store":
                self._on_chip[name] = value
            else:
                self._publish(name, value, f"task {task.name!r}")

    def publish(self, task: int, made: Mapping[str, Value]) -> None:
        """Publishes what a task made by other means than computing: a collective's result."""
        for name, value in made.items():
            self._publish(name, value, f"task {task}")

    def _from_chip(self, name: str, task: Task) -> Value:
        if name not in self._on_chip:
            raise ScheduleError(f"stores {name!r}, which no task before made", where=task.name)
        return self._on_chip.pop(name)

    def read(self, name: str, where: str) -> Value:
        """The value as memory holds it now; ScheduleError when nothing was ever stored."""
        buffer = self.schedule.buffer_of.get(name)
        type_ = self.graph.tensor(name)
        if buffer is not None and type_ is not None and type_.dtype is not DType.STRING:
            shape = self._shape(name, type_)
            if shape is None:
                raise ScheduleError(f"reads {name!r} before its size is known", where=where)
            return self.arena.read(buffer, type_.dtype, shape)
        if name in self._outside:
            return self._outside[name]
        if name in self.graph.constants:
            return self._outside.setdefault(name, load_constant(self.graph, name))
        maker = self.graph.producer(name)
        if maker is not None and maker.is_(*VIEW_OPS):  # rides with another task that reads it
            return self._run(maker, {}, where)[name]
        raise ScheduleError(f"reads {name!r}, which no task before it made", where=where)

    def _run(self, op: Op, made: Mapping[str, Value], where: str) -> dict[str, Value]:
        """The op's outputs by name; ``made`` holds what its task computed before."""

        def value(name: str) -> Value:
            return made[name] if name in made else self.read(name, where)

        if op.is_("Shape", "Size"):
            values: list[Value] = [self._sized(op.inputs[0], made)]
        elif (planned := self._planned_view(op, value)) is not None:
            return {op.outputs[0]: planned}
        else:
            values = [value(v) if v else None for v in op.inputs]
        results = run_op(self.graph, op, values, {v: value(v) for v in self.graph.captures(op)})
        return {v: r for v, r in zip(op.outputs, results, strict=True) if v}

    def _planned_view(self, op: Op, value: Callable[[str], Value]) -> Value:
        """A view in its planned shape, None where that does not apply.

        The sizes that a view is given are known when it is planned; a schedule need not order
        the task behind whatever computes them.
        """
        type_ = self.graph.tensor(op.outputs[0])
        if not op.is_(*VIEW_OPS) or type_ is None or not type_.is_static or op.info.data_sized:
            return None
        source = value(op.inputs[0])
        fits = isinstance(source, np.ndarray) and source.size == math.prod(type_.sizes)
        return source.reshape(type_.sizes) if fits else None

    def _sized(self, name: str, made: Mapping[str, Value]) -> Value:
        """Something of the value's sizes, for ops that look at nothing else."""
        if name in made:
            return made[name]
        type_ = self.graph.tensor(name)
        shape = self._shape(name, type_)
        if type_ is None or shape is None:
            return self.read(name, f"the size of {name!r}")
        return np.broadcast_to(np.zeros((), type_.dtype.numpy), shape)

    def _shape(self, name: str, type_: TensorType | None) -> tuple[int, ...] | None:
        """The sizes the tensor was stored with, else those that are planned."""
        if name in self._shapes or type_ is None or not type_.is_static:
            return self._shapes.get(name)
        return type_.sizes

    def _detached(self, name: str, value: Value) -> Value:
        """The value safe from what happens to memory until the task ends.

        A view that will not be stored needs no copy: only its shape is published.
        """
        if isinstance(value, np.ndarray) and self.arena.holds(value) and not self._is_view(name):
            return value.copy()
        return value

    def _publish(self, name: str, value: Value, where: str) -> None:
        buffer = self.schedule.buffer_of.get(name)
        type_ = self.graph.tensor(name)
        if buffer is None or type_ is None or type_.dtype is DType.STRING:
            self._outside[name] = value
            return
        if not isinstance(value, np.ndarray) or value.dtype != type_.dtype.numpy:
            found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ModelError(
                f"tensor {name!r} came out as {found}, the graph says {type_}", where=where
            )
        self._shapes[name] = value.shape
        if not self._is_view(name):
            self.arena.write(buffer, type_.dtype, value, where)

    def _is_view(self, name: str) -> bool:
        """Whether the value is by its op and by its address the memory of the op's input."""
        op = self.graph.producer(name)
        if op is None or not op.is_(*VIEW_OPS):
            return False
        source, target = (self.schedule.buffer_of.get(v) for v in (op.inputs[0], name))
        return source is not None and target is not None and source.offset == target.offset
