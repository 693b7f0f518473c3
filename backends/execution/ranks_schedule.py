"""Ranks executed as their one schedule says: in simulated order, at planned addresses.

Each rank has a machine of its own. A collective gives what its rank brings when the rank's part
starts, and is there for the others when all parts have started; its result is published when the
part ends. A schedule that ends a part before another has started is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gecompiler.backends.execution.machine import Machine, require_data
from gecompiler.backends.execution.ranks import Exchange
from gecompiler.backends.execution.run_inputs import Value, check_inputs
from gecompiler.backends.execution.run_order import steps
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.graph import Graph
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.timeline import Timeline


def execute_ranks(
    program: ParallelProgram, schedule: Schedule, timeline: Timeline, inputs: Mapping[str, Value]
) -> dict[str, Value]:
    """The whole model's outputs by name, computed as the simulated devices would.

    ``schedule`` has the tasks of all ranks of ``program``, its tensors named ``rank:name``, and
    ``timeline`` is its simulation. Where a wait is missing, or memory is used again too early, on
    any rank, the numbers are wrong as they would be on the devices. Raises as `execute` does;
    ScheduleError for a rank without tasks, and for a collective that ends too early.
    """
    own = _by_rank(program, schedule)
    machines = []
    for rank in range(program.mesh.size):
        graph = program.graph(rank)
        require_data(graph)
        given = check_inputs(graph, program.local_inputs(rank, inputs))
        machines.append(_RankMachine(rank, graph, own[rank], given))
    exchange = Exchange(program.mesh)
    for step in steps(schedule, timeline, None):
        task = schedule.tasks[step.task]
        machine = machines[task.rank]
        if step.what == "start":
            machine.begin(task, exchange)
        else:
            machine.finish(task, exchange)
    return program.join_outputs([machine.outputs() for machine in machines])


def _by_rank(program: ParallelProgram, schedule: Schedule) -> list[Schedule]:
    """The part of each rank, its tensors under the names of its graph."""
    found = []
    for rank in range(program.mesh.size):
        tasks = tuple(_local(t, rank) for t in schedule.tasks if t.rank == rank)
        if not tasks and len(program.template(rank).graph):
            raise ScheduleError(
                f"rank {rank} has no tasks",
                where=schedule.model,
                hint="merge the schedules of all ranks to run with numbers",
            )
        buffers = tuple(
            replace(
                b,
                tensor=_bare(b.tensor, rank),
                alias_of=None if b.alias_of is None else _bare(b.alias_of, rank),
                rank=0,
            )
            for b in schedule.buffers
            if b.rank == rank
        )
        found.append(
            replace(schedule, tasks=tasks, buffers=buffers, events=(), controls=(), states=())
        )
    return found


def _local(task: Task, rank: int) -> Task:
    reads = tuple(_bare(v, rank) for v in task.reads)
    return replace(task, reads=reads, writes=tuple(_bare(v, rank) for v in task.writes))


def _bare(name: str, rank: int) -> str:
    return name.removeprefix(f"{rank}:")


class _RankMachine:
    """One rank: its memory, and its part of collectives."""

    def __init__(
        self, rank: int, graph: Graph, schedule: Schedule, inputs: Mapping[str, Value]
    ) -> None:
        self._rank, self._graph = rank, graph
        self._tasks = {task.id: task for task in schedule.tasks}
        self._machine = Machine(graph, schedule, inputs)

    def begin(self, task: Task, exchange: Exchange) -> None:
        """Reads what the task reads, and computes it or brings it to the others."""
        if task.kind != "collective":
            self._machine.start(self._tasks[task.id])
            return
        op = self._graph.op(task.ops[0])
        value = self._machine.read(op.inputs[0], f"task {task.name!r}") if op.inputs else None
        exchange.post(self._rank, op, None if value is None else value.copy())

    def finish(self, task: Task, exchange: Exchange) -> None:
        """Publishes what the task made, or got from the others."""
        if task.kind != "collective":
            self._machine.end(self._tasks[task.id])
            return
        op = self._graph.op(task.ops[0])
        ready, value = exchange.collect(self._rank, op)
        if not ready:
            raise ScheduleError(
                f"task {task.name!r} of rank {self._rank} ends before all others of "
                f"{task.communicator!r} have started",
                where=task.name,
                hint="the parts of a collective must start together: check the schedule",
            )
        self._machine.publish(task.id, dict.fromkeys(op.outputs, value))

    def outputs(self) -> dict[str, Value]:
        """The rank's outputs by name, as memory holds them at the end."""
        found = {}
        for name in self._graph.outputs:
            value = self._machine.read(name, f"output {name!r} of rank {self._rank}")
            found[name] = value.copy()
        return found
