"""What it takes to give one attention its tensors with rows before heads, and what that saves."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from math import prod

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.layout.row_ops import row_inputs
from gecompiler.passes.user_marks import UNMARKED, placed

PERM = (0, 2, 1, 3)
"""From BNSD to BSND, and back."""

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze")

_MAX_OPS = 24
"""How many ops may stand between an attention and the Transposes of its operands."""

Saving = tuple[int, int]
"""Elements moved and ops run; less of both is better, and elements count first."""


@dataclass
class Operands:
    """How Q, K and V can be had with rows first.

    ``roots`` are Transposes to go round, ``turned`` the ops between (inputs before users),
    ``views`` values that only change shape, having one head or one row.
    """

    graph: Graph
    attention: Op
    pinned: Container[str]
    roots: dict[str, Op] = field(default_factory=dict)
    turned: dict[str, Op] = field(default_factory=dict)
    views: dict[str, None] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)

    def all_reached(self) -> bool:
        """Whether all of Q, K and V can be had so."""
        return all(map(self._reach, self.attention.inputs[:3])) and self._is_consistent()

    def inside(self) -> frozenset[str]:
        """The ops that will read rows first."""
        return frozenset((*self.turned, self.attention.name))

    def idle_roots(self) -> dict[str, Op]:
        """The Transposes that nothing else uses, by the values they make."""
        inside = self.inside()
        made = {t.outputs[0]: t for t in self.roots.values()}
        return {v: t for v, t in made.items() if not outside(self.graph, v, inside)}

    def root_of(self, value: str) -> str:
        """The value that a turned op's result comes from: what a Transpose made, or a view."""
        for _ in range(_MAX_OPS):
            op = self.graph.producer(value)
            if op is None or op.name not in self.turned:
                break
            value = op.inputs[0]
        return value

    def left(self) -> list[str]:
        """Outputs of turned ops that are also used with heads first."""
        inside = self.inside()
        values = [v for op in self.turned.values() for v in op.outputs if v]
        return [v for v in values if outside(self.graph, v, inside)]

    def saving(self) -> Saving:
        """What is no longer moved less what is moved anew."""
        return minus(
            weight(self.graph, self.idle_roots()),
            weight(self.graph, (v for v in self.left() if not is_view(self.graph, v))),
        )

    def _is_consistent(self) -> bool:
        """Whether no result that is turned is also needed as it was by what is turned."""
        made = {v for op in self.turned.values() for v in op.outputs}
        sources = [t.inputs[0] for t in self.roots.values()]
        sources += [view_source(self.graph, value) for value in self.views]
        sources += self.attention.inputs[3:]
        for op in self.turned.values():
            data = row_inputs(self.graph, op) or ()
            sources += [v for n, v in enumerate(op.inputs) if n not in data]
        return made.isdisjoint(sources)

    def _reach(self, value: str) -> bool:
        if value not in self.known:
            self.known[value] = False
            self.known[value] = self._look(value)
        return self.known[value]

    def _look(self, value: str) -> bool:
        op, shape = self.graph.producer(value), self.graph.shape(value)
        if shape is None or len(shape) != len(PERM):
            return False
        if op is not None and is_exchange(op) and self._may_go(op):
            self.roots[op.name] = op
            return True
        if is_view(self.graph, value):
            self.views[value] = None
            return True
        return op is not None and self._through(op)

    def _through(self, op: Op) -> bool:
        """Whether the op works on rows that can be had so."""
        if op.name in self.turned:
            return True
        data = row_inputs(self.graph, op)
        if data is None or op.name in self.pinned or len(self.turned) >= _MAX_OPS:
            return False
        if any(use.slot < 0 for v in op.outputs if v for use in self.graph.uses(v)):
            return False
        self.turned[op.name] = op  # counted before its inputs are looked at, so that depth is
        if not all(self._reach(op.inputs[n]) for n in data):
            return False
        del self.turned[op.name]
        self.turned[op.name] = op
        return True

    def _may_go(self, op: Op) -> bool:
        return may_go(op, self.attention, self.pinned)


def is_exchange(op: Op) -> bool:
    """Whether the op is a Transpose of heads and rows."""
    return op.is_("Transpose") and op.attr("perm") == PERM


def may_go(op: Op, attention: Op, pinned: Container[str]) -> bool:
    """Whether a Transpose may become part of the attention: the user did not set it apart."""
    return op.name not in pinned and placed(op.info) in (UNMARKED, placed(attention.info))


def is_view(graph: Graph, value: str) -> bool:
    """Whether exchanging heads and rows moves nothing, since there is one of either."""
    shape = graph.shape(value)
    return shape is not None and len(shape) == len(PERM) and 1 in (shape[1], shape[2])


def view_source(graph: Graph, value: str) -> str:
    """What a value that is made by a view shows, else the value itself."""
    op = graph.producer(value)
    return op.inputs[0] if op is not None and op.is_(*_VIEWS) else value


def outside(graph: Graph, value: str, inside: Container[str]) -> bool:
    """Whether anything but those ops uses the value."""
    return graph.is_output(value) or any(use.op not in inside for use in graph.uses(value))


def weight(graph: Graph, values: Iterable[str]) -> Saving:
    """The elements of the values (1 each where a size is unknown), and how many there are."""
    sizes = [graph.shape(value) or () for value in values]
    elements = sum(prod(d for d in shape if isinstance(d, int)) for shape in sizes)
    return elements, len(sizes)


def minus(one: Saving, other: Saving) -> Saving:
    """The difference of both parts."""
    return one[0] - other[0], one[1] - other[1]
