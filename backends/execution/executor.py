"""Running a model with real numbers: scheduled, in simulated order, or straight through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gecompiler.backends.execution.host_memory import (
    HostMemory,
    bounded,
    value_bytes,
    weight_bytes,
)
from gecompiler.backends.execution.machine import Machine, load_constant, require_data
from gecompiler.backends.execution.run_inputs import Value, check_inputs
from gecompiler.backends.execution.run_op import run_op
from gecompiler.backends.execution.run_order import steps
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Timeline


def execute(
    graph: Graph,
    schedule: Schedule,
    timeline: Timeline | None,
    inputs: Mapping[str, Value],
    *,
    order: Sequence[int] | None = None,
) -> dict[str, Value]:
    """The outputs by name, computed as the simulated device would (execution-model.md, Numbers).

    ``graph`` is the bound graph that ``schedule`` was made from. Every tensor lies at its planned
    address in one arena. A task reads its inputs when it starts and publishes its outputs when
    it ends, at the times of ``timeline``; with ``order`` (task ids) tasks run one after the other
    in that order, with neither in happens-before order. Where a sync is missing, or memory is
    used again too early, the numbers are wrong as they would be on the device. What is
    taken of the host is in proportion to constants and inputs, or `host_memory.bounded`.

    HostMemoryError for what needs more, UsageError for inputs that do not fit, MissingDataError
    for weights that are not there, ModelError for an op that cannot be computed, ScheduleError
    for a schedule that cannot run.
    """
    _check_schedule(graph, schedule)
    checked = check_inputs(graph, inputs)
    require_data(graph)
    todo = steps(schedule, timeline, order)
    with bounded(_bounds(graph, checked)) as bounds:
        bounds.admit(graph, schedule.arena_bytes)
        machine = Machine(graph, schedule, checked)
        for step in todo:
            task = schedule.tasks[step.task]
            if step.what == "start":
                machine.start(task)
            else:
                machine.end(task)
        return {name: _copied(machine.read(name, f"output {name!r}")) for name in graph.outputs}


def _bounds(graph: Graph, inputs: Mapping[str, Value]) -> HostMemory:
    return HostMemory.of(None, weight_bytes([graph]), inputs.values())


def run_reference(
    graph: Graph,
    inputs: Mapping[str, Value],
    *,
    watch: Callable[[str, Value], None] | None = None,
) -> dict[str, Value]:
    """The outputs by name, computed op after op without schedule or planned memory.

    What `execute` must agree with. Sizes may be symbolic. ``watch`` sees every value that an op
    makes. Raises as `execute` does.
    """
    checked = check_inputs(graph, inputs)
    require_data(graph)
    with bounded(_bounds(graph, checked)) as bounds:
        bounds.admit(graph)
        return _op_by_op(graph, checked, watch or (lambda _name, _value: None), bounds)


def _op_by_op(
    graph: Graph,
    checked: Mapping[str, Value],
    watch: Callable[[str, Value], None],
    bounds: HostMemory,
) -> dict[str, Value]:
    values: dict[str, Value] = dict(checked)
    order = graph.topological()
    left = _uses_left(graph)
    for op in order:
        captures = graph.captures(op)
        for name in (*op.inputs, *captures):
            if name and name not in values:
                values[name] = load_constant(graph, name)
        given = [values[v] if v else None for v in op.inputs]
        results = run_op(graph, op, given, {v: values[v] for v in captures})
        made = {v: r for v, r in zip(op.outputs, results, strict=True) if v}
        values.update(made)
        for name, value in made.items():
            bounds.hold(value_bytes(value))
            watch(name, value)
        for name in graph.reads(op):
            left[name] -= 1
            if not left[name]:
                gone = values.pop(name)
                bounds.hold(-value_bytes(gone) if graph.producer(name) is not None else 0)
    return {
        name: _copied(values[name] if name in values else load_constant(graph, name))
        for name in graph.outputs
    }


def _uses_left(graph: Graph) -> dict[str, int]:
    """How many ops are still to read each value; outputs are kept."""
    left = dict.fromkeys(graph.values, 0)
    for op in graph.ops:
        for name in graph.reads(op):
            left[name] += 1
    for name in graph.outputs:
        left[name] += 1
    return left


def _copied(value: Value) -> Value:
    return value.copy() if isinstance(value, np.ndarray) else value


def _check_schedule(graph: Graph, schedule: Schedule) -> None:
    """Every op must be in one task, and the arena be one rank's."""
    if any(task.rank for task in schedule.tasks):
        raise ScheduleError(
            "the schedule spans several ranks; one rank can be executed",
            where=schedule.model,
            hint="compile without parallel ranks to run with numbers",
        )
    scheduled = {name for task in schedule.tasks for name in task.ops}
    missing = [op.name for op in graph.ops if op.name not in scheduled]
    strange = sorted(scheduled - {op.name for op in graph.ops})
    if missing or strange:
        what = f"op {missing[0]!r} is in no task" if missing else f"no op {strange[0]!r}"
        raise ScheduleError(
            f"schedule and graph do not belong together: {what}", where=schedule.model
        )
