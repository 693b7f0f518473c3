"""From a bound graph to tasks.

What becomes of an op:

- a **view** (Reshape, Squeeze, Unsqueeze, Flatten, Identity) is no task: its output shares its
  input's memory, and its name rides in the `ops` of the task that makes the input. A view of a
  graph input or constant, or one whose shape is computed in the run, rides ahead of the op
  itself with the first task that reads it, which then reads that shape as well.
- a view whose result must have memory of its own is a `copy` task: a graph output that would
  share the memory of an input, a constant or another output; and one whose sizes are estimates
  that do not go with those of what it looks at.
- a Concat whose parts can be made in their places in its output (`gather`) is a task that asks
  nothing of the device.
- an op whose result is known on the host (Shape, Size, and integer arithmetic on a few such
  numbers and constants) is a `host` task that asks nothing of the device.
- an op by which ranks talk to each other is a `collective` task, whose communicator is named by
  the axes of the mesh until the ranks are known (`rank_schedules`).
- any other op, bodies of If, Loop and Scan included, is one `kernel` task.

Tasks keep the graph's topological order; `Task.reads` and `writes` hold the values as the ops
name them, views included, so that a task runs without knowing of aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Control, Demand, StateAlias
from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.draft import Draft
from gecompiler.passes.scheduling.gather import Memory, gathers
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.scheduling.tensor_specs import Places, static_bytes, tensor_specs

VIEW_OPS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})

HOST_ENGINE = "DNN_VM_HOST_CPU"
HOST_ELEMENTS = 64
"""An integer tensor of at most this many elements may be worked out on the host."""


def lower(graph: Graph, target: Target) -> TaskGraph:
    """The tasks of a graph. UnknownSizeError names a value whose size is not a number."""
    return _Lowering(graph, target).run()


class _Lowering:
    """One run over the ops of a graph, in topological order."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.outputs = set(graph.outputs)
        self.alias: dict[str, str] = {}
        self.holds_output: set[str] = set()
        self.host: set[str] = set()
        self.tasks: list[Draft] = []
        self.by_value: dict[str, int] = {}
        self.early: dict[str, tuple[Op, ...]] = {}
        self.ridden: set[str] = set()
        self.part_of: dict[str, tuple[str, int]] = {}

    def run(self) -> TaskGraph:
        graph = self.graph
        self.holds_output.update(v for v in graph.outputs if graph.producer(v) is None)
        for op in graph.topological():
            if self._is_view(op):
                self._ride(op)
            else:
                self._add_task(op)
        self._ride_at_last()
        self._gather()
        riders = {n: i for i, d in enumerate(self.tasks) for n in (d.main.name, *d.after)}
        tasks = tuple(draft.task(i) for i, draft in enumerate(self.tasks))
        return TaskGraph(
            graph.name,
            tasks,
            tensor_specs(graph, tasks, Places(self._root, self.by_value, self.part_of)),
            tuple(d.engine for d in self.tasks),
            tuple(d.main.info.label for d in self.tasks),
            tuple(self.target.alone_us(d.demand) for d in self.tasks),
            self._controls(riders),
            tuple(
                StateAlias(s.input, s.output, static_bytes(graph, s.output), s.axis)
                for s in graph.states
            ),
            riders,
        )

    # ---------------------------------------------------------------- views

    def _root(self, value: str) -> str:
        return self.alias.get(value, value)

    def _is_view(self, op: Op) -> bool:
        if not op.is_(*VIEW_OPS) or not op.outputs[0] or self._misjudged(op):
            return False
        if op.outputs[0] not in self.outputs:
            return True
        root = self._root(op.inputs[0])
        return root in self.by_value and root not in self.holds_output and not self._late(op)

    def _misjudged(self, op: Op) -> bool:
        """Whether a view's estimated sizes are not those of what it looks at."""
        if not op.info.data_sized:
            return False
        source, value = (static_bytes(self.graph, v) for v in (op.inputs[0], op.outputs[0]))
        return source != value

    def _late(self, op: Op) -> bool:
        """Whether the view's shape is only known in the run."""
        return any(v and self.graph.constant(v) is None for v in op.inputs[1:])

    def _ride(self, op: Op) -> None:
        source, value = op.inputs[0], op.outputs[0]
        root = self.alias[value] = self._root(source)
        if value in self.outputs:
            self.holds_output.add(root)
        if source in self.host:
            self.host.add(value)
        maker = self.by_value.get(root)
        if maker is None or source in self.early or self._late(op):
            self.early[value] = (*self.early.get(source, ()), op)
            return
        self.tasks[maker].after.append(op.name)
        self.tasks[maker].writes.append(value)

    def _board(self, draft: Draft, ops: Iterable[Op], place: list[str]) -> None:
        """Views that ride with a task that does not make what they look at."""
        for op in ops:
            if op.name not in self.ridden:
                self.ridden.add(op.name)
                place.append(op.name)
                shapes = (v for v in op.inputs[1:] if v and self.graph.constant(v) is None)
                draft.reads = tuple(dict.fromkeys((*draft.reads, op.inputs[0], *shapes)))

    def _ride_at_last(self) -> None:
        """Views that no task reads; every op belongs to a task."""
        left = [op for ops in self.early.values() for op in ops]
        if left and not self.tasks:
            self.ridden.add(left[0].name)
            self.alias.pop(left[0].outputs[0])
            self._add_task(left[0])
        if left:
            self._board(self.tasks[-1], left, self.tasks[-1].last)

    # ---------------------------------------------------------------- tasks

    def _add_task(self, op: Op) -> None:
        draft = Draft(op, tuple(v for v in op.outputs if v))
        if op.is_(*VIEW_OPS):
            size = float(static_bytes(self.graph, op.outputs[0]))
            draft.kind, draft.reads = "copy", self.graph.reads(op)
            draft.demand = Demand(load_bytes=size, store_bytes=size)
        elif self._is_host(op):
            draft.kind = "host"
            sizes_only = op.is_("Shape", "Size") and not op.info.data_sized
            draft.reads = () if sizes_only else self.graph.reads(op)
            self.host.update(draft.writes)
        else:
            draft.reads = self.graph.reads(op)
            for value in (*draft.reads, *draft.writes):
                static_bytes(self.graph, value)
            draft.demand = self.target.demand(self.graph, op)
            if is_collective_op(op):
                draft.kind, draft.communicator = "collective", str(op.attr("communicator", ""))
        draft.engine = HOST_ENGINE if draft.kind == "host" else self.target.engine(op)
        for value in draft.reads:
            self._board(draft, self.early.get(value, ()), draft.before)
        for value in draft.writes:
            self.by_value[value] = len(self.tasks)
            if value in self.outputs:
                self.holds_output.add(value)
        self.tasks.append(draft)

    def _is_host(self, op: Op) -> bool:
        if op.domain or op.bodies or not all(self._is_small(v) for v in op.outputs if v):
            return False
        if op.op_type in ("Shape", "Size"):
            return True
        reads = [v for v in op.inputs if v]
        known = all(v in self.host or self.graph.constant(v) is not None for v in reads)
        return known and all(self._is_small(v) for v in reads)

    def _is_small(self, value: str) -> bool:
        found = self.graph.tensor(value)
        if found is None or not found.is_static or found.dtype.is_float:
            return False
        return found.bytes * 8 <= HOST_ELEMENTS * found.dtype.bits

    def _gather(self) -> None:
        """Concatenations whose parts can be made in their places ask nothing of the device."""
        kept = self.holds_output | {v for s in self.graph.states for v in (s.input, s.output)}
        memory = Memory(self._root, self.by_value, kept)
        self.part_of = gathers(self.graph, self.tasks, memory)
        for whole, _ in self.part_of.values():
            self.tasks[self.by_value[whole]].demand = Demand()

    # ------------------------------------------------------------- controls

    def _controls(self, riders: Mapping[str, int]) -> tuple[Control, ...]:
        """The graph's control edges between tasks; one on a view holds for those who read it."""
        found: dict[Control, None] = {}
        for before, after in self.graph.controls:
            producer = riders.get(before)
            if producer is None:  # a view of what is there from the start, or was before
                producer = self.by_value.get(self._root(self.graph.op(before).inputs[0]))
            if producer is None:
                continue
            for consumer in self._waiting(self.graph.op(after), riders):
                if consumer != producer:
                    found[Control(producer, consumer, "graph")] = None
        return tuple(found)

    def _waiting(self, op: Op, riders: Mapping[str, int]) -> list[int]:
        """The task of the op; for a view, the tasks that read it or views of it."""
        found: list[int] = []
        todo = [op]
        while todo:
            current = todo.pop()
            task = riders.get(current.name)
            if task is not None and self.tasks[task].main is current:
                found.append(task)
            else:
                todo += self.graph.users(current.outputs[0])
        return sorted(set(found))
