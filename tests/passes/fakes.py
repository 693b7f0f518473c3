"""A small device, a simulator without contention, and random graphs, for tests of scheduling."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph, State
from gecompiler.ir.op import Op, OpInfo
from gecompiler.ir.schedule import Control, Demand, Limits, Schedule, Task
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.ir.types import TensorType, tensor
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.strategy import Placement

CUBE = ("MatMul", "Gemm", "FlashAttention")


@dataclass
class FakeTarget:
    """100 bytes/us of HBM, a cube and a vector core; kernels load, then compute, then store."""

    limits: Limits = field(
        default_factory=lambda: Limits(4, 64, 10_000, 1 << 30, 1, 1, prefetch_bytes=1 << 14)
    )
    name: str = "fake"
    task_gap_us: float = 1.0
    event_us: float = 1.5
    hbm: float = 100.0
    copies: int = 1
    """How many tasks run side by side at full speed, which `FakeEvaluator` takes for granted."""

    def demand(self, graph: Graph, op: Op) -> Demand:
        reads = float(sum(_bytes(graph, v) for v in graph.reads(op)))
        writes = float(sum(_bytes(graph, v) for v in op.outputs if v))
        elements = writes / 4
        if op.op_type in CUBE:
            return Demand(reads, writes, cube_us=elements / 16, cube_cores=1, fixed_us=2.0)
        return Demand(reads, writes, vector_us=elements / 64, vector_cores=1, fixed_us=1.0)

    def alone_us(self, demand: Demand) -> float:
        moves = (demand.load_bytes + demand.store_bytes) / self.hbm
        return demand.fixed_us + moves + max(demand.cube_us, demand.vector_us)

    def engine(self, op: Op) -> str:
        if op.domain and "AllReduce" in op.op_type:
            return "DNN_HCCL"
        return "AIcoreEngine" if op.op_type in CUBE else "VectorEngine"

    def capacities(self) -> dict[str, float]:
        return {"cube": self.copies, "vector": self.copies, "hbm": self.hbm * self.copies}

    def work(self, demand: Demand) -> dict[str, float]:
        moved = demand.load_bytes + demand.store_bytes
        return {"cube": demand.cube_us, "vector": demand.vector_us, "hbm": moved}

    def with_limits(self, **changes: int) -> FakeTarget:
        return replace(self, limits=replace(self.limits, **changes))


def _bytes(graph: Graph, value: str) -> int:
    found = graph.tensor(value)
    return found.bytes if found is not None else 0


class FakeEvaluator:
    """FIFO streams with gaps and events, every task as fast as alone; counts its runs."""

    def __init__(self, target: FakeTarget) -> None:
        self.target = target
        self.runs = 0

    def __call__(self, schedule: Schedule) -> Timeline:
        self.runs += 1
        gap, event = self.target.task_gap_us, self.target.event_us
        end: dict[int, float] = {}
        queues = {key: list(tasks) for key, tasks in schedule.streams.items()}
        free = dict.fromkeys(queues, -gap)
        spans: list[Span] = []
        while any(queues.values()):
            moved = False
            for key, queue in queues.items():
                while queue and all(e.producer in end for e in schedule.waits.get(queue[0].id, ())):
                    task = queue.pop(0)
                    waits = [end[e.producer] for e in schedule.waits.get(task.id, ())]
                    start = max([0.0, free[key] + gap, *(w + event for w in waits)])
                    alone = self.target.alone_us(task.demand)
                    end[task.id] = free[key] = start + alone
                    spans.append(_span(task, start, end[task.id], alone))
                    moved = True
            assert moved, "deadlock"
        return Timeline(tuple(sorted(spans, key=lambda s: s.task)), device=self.target.name)


def _span(task, start: float, end: float, alone: float) -> Span:  # type: ignore[no-untyped-def]
    return Span(
        task.id,
        task.name,
        task.op_type,
        task.rank,
        task.stream,
        math.ceil(start * 1000 - 1e-6),
        math.ceil(end * 1000 - 1e-6),
        math.ceil(alone * 1000 - 1e-6),
    )


def random_graph(
    seed: int, ops: int = 12, *, states: bool = True, views: bool = True, controls: bool = False
) -> Graph:
    """A graph of elementwise ops, products, views and copies over square tensors of some sizes."""
    rng = random.Random(seed)
    graph = Graph(f"random{seed}")
    sizes = rng.sample([(4, 4), (8, 8), (16, 16), (2, 8)], rng.randint(1, 3))
    pool: dict[tuple[int, ...], list[str]] = {}
    for i, size in enumerate(sizes):
        pool[size] = [graph.add_input(f"x{i}", tensor("f32", size))]
        weight = Constant.absent(tensor("f32", size))
        pool[size].append(graph.add_constant(f"w{i}", weight))
    old: list[tuple[str, tuple[int, ...]]] = []
    if states and rng.random() < 0.6:
        size = rng.choice(sizes)
        old.append((graph.add_input("past", tensor("f32", size)), size))
        pool[size].append("past")
    for i in range(ops):
        size = rng.choice(sizes)
        kind = rng.choice(["Add", "Relu", "MatMul", "Reshape", "Identity", "Mul", "Transpose"])
        if not views and kind in ("Reshape", "Identity"):
            kind = "Relu"
        if kind == "MatMul" and size[0] != size[1]:
            kind = "Add"
        count = 2 if kind in ("Add", "Mul", "MatMul") else 1
        inputs = [rng.choice(pool[size][-6:]) for _ in range(count)]
        if kind == "Reshape":
            inputs.append(graph.constant_of("shape", list(size)))
        group = rng.choice(["MLP gate", "MLP up", "LayerNorm", ""])
        op = Op(f"op{i}", kind, tuple(inputs), (f"t{i}",), info=OpInfo(group=group))
        graph.add_op(op, [TensorType(tensor("f32", ()).dtype, size)])
        pool[size].append(f"t{i}")
    _finish_graph(graph, rng, ops, old, controls)
    return graph


def _finish_graph(
    graph: Graph,
    rng: random.Random,
    ops: int,
    old: list[tuple[str, tuple[int, ...]]],
    controls: bool,
) -> None:
    loose = [f"t{i}" for i in range(ops) if not graph.uses(f"t{i}")]
    outputs = loose + rng.sample([f"t{i}" for i in range(ops)], min(2, ops))
    found = list(dict.fromkeys(outputs))
    if old:
        name, size = old[0]
        op = Op("append", "Add", (name, name), ("present",))
        graph.add_op(op, [tensor("f32", size)])
        found.append("present")
    graph.set_outputs(found)
    if old:
        graph.set_states([State(old[0][0], "present")])
    if controls and ops > 1:
        for _ in range(3):
            a, b = sorted(rng.sample(range(ops), 2))
            graph.add_control(f"op{a}", f"op{b}")


def task_graph(
    count: int, edges: list[tuple[int, int]], us: list[float] | None = None
) -> TaskGraph:
    """Bare tasks t0, t1, ... that edges (as control edges) order, each on the vector core."""
    times = us or [1.0] * count
    tasks = tuple(
        Task(i, f"t{i}", "kernel", 0, i, (f"t{i}",), "Relu", demand=Demand(fixed_us=times[i]))
        for i in range(count)
    )
    return TaskGraph(
        "bare",
        tasks,
        {},
        ("VectorEngine",) * count,
        (None,) * count,
        tuple(times),
        tuple(Control(a, b, "graph") for a, b in edges),
        riders={t.name: t.id for t in tasks},
    )


def random_dag(rng: random.Random, count: int, density: float) -> list[tuple[int, int]]:
    """Edges from lower to higher numbers."""
    return [(a, b) for b in range(count) for a in range(b) if rng.random() < density]


def random_placement(graph: TaskGraph, rng: random.Random, streams: int) -> Placement:
    """Any stream for each task, in a random topological order."""
    waiting = [len(p) for p in graph.preds]
    ready = [t for t, n in enumerate(waiting) if not n]
    sequence: list[int] = []
    while ready:
        task = ready.pop(rng.randrange(len(ready)))
        sequence.append(task)
        for s in graph.succs[task]:
            waiting[s] -= 1
            if not waiting[s]:
                ready.append(s)
    return Placement(graph, tuple(rng.randrange(streams) for _ in sequence), tuple(sequence))
