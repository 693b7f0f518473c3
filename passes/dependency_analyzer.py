"""Who depends on whom, and what may run beside what.

The words are the graph engine's: an edge whose tensor has one consumer, and whose producer has
no side effects, may have its ends on two streams with a sync between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes import effects
from gecompiler.passes.reachability import Reachability


@dataclass(frozen=True, slots=True)
class Edge:
    """``consumer`` reads ``tensor``, which ``producer`` makes."""

    producer: Op
    consumer: Op
    tensor: str
    is_single_consumer: bool
    """Whether no other op, nor the user of the model, takes the tensor."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an op may not run beside another: ``path`` leads from the one to the other."""

    op: Op
    relation: Literal["before", "after"]
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op.name} runs {self.relation}: " + " -> ".join(self.path)


@dataclass(frozen=True)
class Window:
    """What may run beside ``op``; `why_not` explains the rest."""

    op: Op
    beside: tuple[Op, ...]
    """Ops that no path connects with it, in topological order."""
    before: tuple[Op, ...]
    """Ops that it waits for, directly or not."""
    after: tuple[Op, ...]
    """Ops that wait for it, directly or not."""
    analyzer: DependencyAnalyzer

    def why_not(self, other: Op | str) -> Obstacle | None:
        """The path that keeps ``other`` from running beside the op; None when it may."""
        return self.analyzer.obstacle(self.op, other)


class DependencyAnalyzer:
    """Dependencies of a graph as it is now; make a new one after an edit.

    Ops are given as `Op` or by name; an unknown one is a UsageError with the nearest names.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._order = graph.topological()
        self._index = {op.name: i for i, op in enumerate(self._order)}
        self._marked: dict[tuple[str, str], None] = {}

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """One edge for each op and tensor it reads that another op makes, in topological order.

        Control edges carry no tensor and are `graph.controls`; `independent` and `window`
        respect them.
        """
        outputs = set(self.graph.outputs)
        found: list[Edge] = []
        for consumer in self._order:
            for tensor in self.graph.reads(consumer):
                producer = self.graph.producer(tensor)
                if producer is not None:
                    single = tensor not in outputs and len(self.graph.users(tensor)) == 1
                    found.append(Edge(producer, consumer, tensor, single))
        return tuple(found)

    @cached_property
    def _reach(self) -> Reachability:
        index = self._index
        preds = [sorted(index[p.name] for p in self.graph.predecessors(o)) for o in self._order]
        return Reachability(preds)

    @cached_property
    def _state_outputs(self) -> frozenset[str]:
        return frozenset(state.output for state in self.graph.states)

    def has_side_effects(self, op: Op | str) -> bool:
        """Whether the op does more than compute its outputs from its inputs.

        It draws random numbers, meets other cards, is of a domain that is not known here, or
        writes state that outlives the run (a KV cache).
        """
        found = self._op(op)
        if any(value in self._state_outputs for value in found.outputs):
            return True
        return not effects.is_pure(found)

    def mark_parallelizable(self, producer: Op | str, consumer: Op | str) -> None:
        """Notes that the two may sit on two streams, with a sync where data flows between them.

        UsageError when the order is the other way round or the producer has side effects.
        """
        before, after = self._op(producer), self._op(consumer)
        where = "mark_parallelizable"
        if before is after:
            raise UsageError(f"{before.name!r} cannot run beside itself", where=where)
        path = self._path(after, before)
        if path:
            raise UsageError(
                f"{before.name!r} runs after {after.name!r}: {' -> '.join(path)}", where=where
            )
        if self.has_side_effects(before):
            raise UsageError(f"{before.name!r} ({before.kind}) has side effects", where=where)
        self._marked[before.name, after.name] = None

    @property
    def parallelizable(self) -> tuple[tuple[str, str], ...]:
        """The marked pairs of op names, in the order they were marked."""
        return tuple(self._marked)

    def independent(self, a: Op | str, b: Op | str) -> bool:
        """Whether neither waits for the other, directly or not. An op depends on itself."""
        i, j = sorted((self._at(a), self._at(b)))
        return i != j and not self._reach.reaches(i, j)

    def obstacle(self, op: Op | str, other: Op | str) -> Obstacle | None:
        """The path that keeps two ops from running side by side, None when nothing does."""
        one, two = self._op(op), self._op(other)
        if one is two:
            return Obstacle(two, "before", (one.name,))
        path = self._path(two, one)
        if path:
            return Obstacle(two, "before", path)
        path = self._path(one, two)
        return Obstacle(two, "after", path) if path else None

    def window(self, op: Op | str) -> Window:
        """What may run beside the op, and what may not. O(V + E)."""
        at = self._at(op)
        before, after = self._reach.ancestors(at), self._reach.descendants(at)
        rest = {at, *before, *after}
        beside = tuple(o for i, o in enumerate(self._order) if i not in rest)
        named = self._order
        return Window(
            named[at], beside, tuple(named[i] for i in before), tuple(named[i] for i in after), self
        )

    def _path(self, a: Op, b: Op) -> tuple[str, ...]:
        path = self._reach.path(self._index[a.name], self._index[b.name])
        return tuple(self._order[i].name for i in path)

    def _at(self, op: Op | str) -> int:
        name = op if isinstance(op, str) else op.name
        if name not in self._index:
            raise UsageError(
                f"no op {name!r}", where=self.graph.name, hint=nearest(name, self._index)
            )
        return self._index[name]

    def _op(self, op: Op | str) -> Op:
        return self._order[self._at(op)]
