"""What a Graph holds, and every question that can be asked of it; edits are `graph.Graph`'s."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import networkx as nx

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim
from gecompiler.ir.errors import GraphError
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType, ValueType


class Use(NamedTuple):
    """One use of a value: which op, and which of its inputs (-1: inside one of its bodies)."""

    op: str
    slot: int


@dataclass(frozen=True, slots=True)
class State:
    """Memory that outlives a run: ``output`` of one run is ``input`` of the next.

    ``axis`` is where it grows (a KV cache by Concat), None where it is replaced whole.
    """

    input: str
    output: str
    axis: int | None = None


class GraphBase:
    """Storage and queries of a graph. Use `Graph`."""

    def __init__(self, name: str = "graph", opsets: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.opsets: dict[str, int] = dict(opsets or {"": 20})
        self.metadata: dict[str, str] = {}
        self._net: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        self._ops: dict[str, Op] = {}
        self._inputs: dict[str, None] = {}
        self._outputs: list[str] = []
        self._outer: dict[str, None] = {}
        self._constants: dict[str, Constant] = {}
        self._types: dict[str, ValueType] = {}
        self._producer: dict[str, str] = {}
        self._uses: dict[str, dict[Use, None]] = {}
        self._controls: dict[tuple[str, str], None] = {}
        self._states: tuple[State, ...] = ()
        self._counters: dict[str, int] = {}
        self._reserved: frozenset[str] = frozenset()
        self._replacements: dict[str, str] | None = None
        self._order: tuple[Op, ...] | None = None
        self._verified: dict[str, tuple[object, ...]] = {}

    # ---------------------------------------------------------------- reading

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the output values, in order."""
        return tuple(self._outputs)

    @property
    def outer(self) -> tuple[str, ...]:
        """Values a body takes from the graph around it."""
        return tuple(self._outer)

    @property
    def constants(self) -> Mapping[str, Constant]:
        """The constants by name."""
        return self._constants

    @property
    def states(self) -> tuple[State, ...]:
        """The declared state."""
        return self._states

    @property
    def controls(self) -> tuple[tuple[str, str], ...]:
        """Pairs (before, after) of op names that data does not order."""
        return tuple(self._controls)

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops, in order of insertion (which need not be topological)."""
        return tuple(self._ops.values())

    def newest(self, count: int) -> tuple[Op, ...]:
        """The ``count`` ops that were inserted last, in order. O(count)."""
        return tuple(islice(reversed(self._ops.values()), count))[::-1]

    def __len__(self) -> int:
        return len(self._ops)

    def __contains__(self, op_name: object) -> bool:
        return op_name in self._ops

    def op(self, name: str) -> Op:
        """The op of that name; GraphError when there is none."""
        if name not in self._ops:
            raise GraphError(f"no op {name!r}", where=self.name)
        return self._ops[name]

    def has_value(self, value: str) -> bool:
        """Whether a value of that name exists here."""
        return value in self._uses

    @property
    def values(self) -> tuple[str, ...]:
        """The names of all values."""
        return tuple(self._uses)

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The type of every value by name, None where nothing is known."""
        return self._types

    def type(self, value: str) -> ValueType:
        """The value's type, None where nothing is known; GraphError for an unknown name."""
        if value not in self._uses:
            raise GraphError(f"no value {value!r}", where=self.name)
        return self._types.get(value)

    def tensor(self, value: str) -> TensorType | None:
        """The value's type if it is a tensor's, else None (also for the absent input '')."""
        found = self._types.get(value)
        return found if isinstance(found, TensorType) else None

    def shape(self, value: str) -> tuple[Dim, ...] | None:
        """The value's shape, or None when the rank is unknown."""
        found = self._types.get(value)
        return found.shape if isinstance(found, TensorType) else None

    def constant(self, value: str) -> Constant | None:
        """The constant of that name, or None when the value is none."""
        return self._constants.get(value)

    def producer(self, value: str) -> Op | None:
        """The op that makes the value; None for inputs, constants and outer values."""
        name = self._producer.get(value)
        return None if name is None else self._ops[name]

    def uses(self, value: str) -> tuple[Use, ...]:
        """All uses by ops, in the order they came about. Being a graph output is no `Use`."""
        return tuple(self._uses.get(value, ()))

    def users(self, value: str) -> tuple[Op, ...]:
        """The ops that use the value, each once."""
        return tuple(self._ops[n] for n in dict.fromkeys(u.op for u in self._uses.get(value, ())))

    def is_output(self, value: str) -> bool:
        """Whether the value is an output of the graph. O(outputs)."""
        return value in self._outputs

    def single_use(self, value: str) -> bool:
        """Whether exactly one op input and no graph output uses the value."""
        return len(self._uses.get(value, ())) == 1 and not self.is_output(value)

    def captures(self, op: Op) -> tuple[str, ...]:
        """Values of this graph that the op's bodies take."""
        return tuple(dict.fromkeys(v for body in op.bodies for v in body.outer))

    def reads(self, op: Op) -> tuple[str, ...]:
        """Every value the op depends on: inputs that are there, then captures, each once."""
        if not op.attrs or not op.bodies:
            return tuple(dict.fromkeys(v for v in op.inputs if v))
        return tuple(dict.fromkeys([*(v for v in op.inputs if v), *self.captures(op)]))

    def predecessors(self, op: Op) -> tuple[Op, ...]:
        """Ops that this one must wait for, by data or control, each once."""
        return tuple(self._ops[n] for n in self._net.predecessors(op.name))

    def successors(self, op: Op) -> tuple[Op, ...]:
        """Ops that must wait for this one, by data or control, each once."""
        return tuple(self._ops[n] for n in self._net.successors(op.name))

    def view(self) -> nx.MultiDiGraph[str]:
        """A read-only view for networkx algorithms.

        Nodes are op names; edge data has ``tensor`` (None for a control edge).
        """
        view: nx.MultiDiGraph[str] = nx.freeze(self._net.copy(as_view=True))
        return view

    def topological(self) -> tuple[Op, ...]:
        """All ops, producers first; among ready ops the earliest inserted. GraphError on a cycle.

        O((V+E) log V) after an edit of ops, else O(1). The same for equal graphs, whatever
        edits led to them.
        """
        if self._order is None:
            self._order = self._sorted()
        return self._order

    def _sorted(self) -> tuple[Op, ...]:
        rank = {name: i for i, name in enumerate(self._ops)}
        names = list(self._ops)
        waiting = {n: len(self._net.pred[n]) for n in names}
        ready = [rank[n] for n in names if not waiting[n]]
        heapq.heapify(ready)
        order: list[Op] = []
        while ready:
            name = names[heapq.heappop(ready)]
            order.append(self._ops[name])
            for after in self._net.succ[name]:
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(ready, rank[after])
        if len(order) < len(names):
            raise GraphError(f"cycle through {self._some_cycle(waiting)}", where=self.name)
        return tuple(order)

    def _some_cycle(self, waiting: Mapping[str, int]) -> str:
        left = self._net.subgraph([n for n, count in waiting.items() if count])
        edges = nx.find_cycle(left)
        return " -> ".join([*(str(e[0]) for e in edges), str(edges[0][0])])
