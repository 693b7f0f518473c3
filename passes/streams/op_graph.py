"""A read-only view of a graph for users' strategies."""

from __future__ import annotations

from functools import cached_property

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.lowering import VIEW_OPS
from gecompiler.passes.streams.op_flops import flops


class OpNode:
    """One op: what it is, what it is joined to, and what it asks of the device."""

    def __init__(self, graph: OpGraph, op: Op) -> None:
        self._graph = graph
        self._op = op

    @property
    def name(self) -> str:
        """The op's name, unique in the graph."""
        return self._op.name

    @property
    def op_type(self) -> str:
        """The op's type, such as ``MatMul`` or ``FlashAttention``."""
        return self._op.op_type

    @property
    def group(self) -> str:
        """The name people use, such as ``MLP gate``; empty when it has none."""
        return self._op.info.group

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors it reads."""
        return self._graph.graph.reads(self._op)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the tensors it makes."""
        return tuple(v for v in self._op.outputs if v)

    @property
    def predecessors(self) -> tuple[OpNode, ...]:
        """The ops it waits for."""
        return tuple(self._graph.op(p.name) for p in self._graph.graph.predecessors(self._op))

    @property
    def successors(self) -> tuple[OpNode, ...]:
        """The ops that wait for it."""
        return tuple(self._graph.op(s.name) for s in self._graph.graph.successors(self._op))

    @cached_property
    def flops(self) -> float:
        """Arithmetic operations, a multiply-add counted as two."""
        return flops(self._graph.graph, self._op)

    @cached_property
    def bytes(self) -> float:
        """Bytes it moves between device memory and the cores."""
        return self._demand.load_bytes + self._demand.store_bytes

    @cached_property
    def _demand(self) -> Demand:
        if self._op.is_(*VIEW_OPS):
            return Demand()
        return self._graph.target.demand(self._graph.graph, self._op)

    @cached_property
    def _times(self) -> tuple[float, float]:
        """The least time of its arithmetic and of its memory traffic, each alone, in us."""
        work = self._graph.target.work(self._demand)
        capacity = self._graph.target.capacities()
        compute = max(work.get(r, 0.0) / capacity[r] for r in ("cube", "vector") if r in capacity)
        memory = work.get("hbm", 0.0) / capacity["hbm"] if "hbm" in capacity else 0.0
        return compute, memory

    def is_compute_intensive(self) -> bool:
        """Whether its arithmetic takes longer than its traffic with device memory."""
        compute, memory = self._times
        return compute > memory

    def is_memory_intensive(self) -> bool:
        """Whether its traffic with device memory takes at least as long as its arithmetic."""
        compute, memory = self._times
        return memory >= compute and memory > 0

    def __repr__(self) -> str:
        return f"<{self.op_type} {self.name!r}>"


class OpGraph:
    """The ops of a bound graph, producers first."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self._nodes = {op.name: OpNode(self, op) for op in graph.topological()}

    @property
    def ops(self) -> tuple[OpNode, ...]:
        """All ops, producers first."""
        return tuple(self._nodes.values())

    def op(self, name: str) -> OpNode:
        """The op of that name; KeyError when there is none."""
        return self._nodes[name]
