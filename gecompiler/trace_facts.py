"""What trace files say of a compiled model's tasks beyond times: shapes, types, cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gecompiler.backends.trace.recording import Recording, TaskFacts, Tensors, derived_facts
from gecompiler.captures.cells import type_name
from gecompiler.ir.types import TensorType

if TYPE_CHECKING:
    from gecompiler.driver import Compilation
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.schedule import Task


def compilation_recording(compilation: Compilation) -> Recording:
    """The simulated run, for the trace writers."""
    result = compilation.result
    tasks = result.schedule.tasks
    facts = {task.id: _facts(compilation.graph, task) for task in tasks}
    return Recording(result.timeline, result.schedule, facts)


def _facts(graph: Graph, task: Task) -> TaskFacts:
    """The operands of the op that gives the task its cost; of a copy, of what it moves."""
    for name in task.ops:
        op = graph.op(name) if name in graph else None
        if op is not None and op.op_type == task.op_type:
            return derived_facts(task, _tensors(graph, op.inputs), _tensors(graph, op.outputs))
    return derived_facts(task, _tensors(graph, task.reads), _tensors(graph, task.writes))


def _tensors(graph: Graph, names: Sequence[str]) -> Tensors:
    found = [_type(graph, name) for name in names if name]
    known = [one for one in found if one is not None]
    shapes = tuple(",".join(str(size) for size in one.shape or ()) for one in known)
    return Tensors(shapes, tuple(type_name(one.dtype) for one in known), ("ND",) * len(known))


def _type(graph: Graph, name: str) -> TensorType | None:
    """A value's type; of several ranks' tensors ``rank:name``."""
    found = graph.tensor(name)
    if found is None:
        rank, colon, rest = name.partition(":")
        found = graph.tensor(rest) if colon and rank.isdigit() else None
    return found if found is not None and found.shape is not None else None
