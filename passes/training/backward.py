"""Reverse-mode differentiation: from gradients of results to gradients of what they depend on.

Ops are visited from the last to the first. An op's rule is asked once the gradients of all its
outputs are complete; what it gives is added to what its inputs have already (Griewank & Walther,
"Evaluating Derivatives", chapter 3). Near-linear in the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gecompiler.ir.collective_ops import RECV, SEND
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.training_ops import BACKWARD
from gecompiler.passes.training.rules import rule_of
from gecompiler.passes.training.site import Site
from gecompiler.passes.training.tape import Tape

Transfer = tuple[str, str]


@dataclass
class Backward:
    """One way back through some ops of a graph, which is extended in place.

    ``ops`` are in topological order; ``grads`` holds, by value, gradients that are known so far.
    ``before_visit`` is told a gradient that an op's rule is about to use; ``label`` is the stream
    label of what is written. ``live`` are the transfers (`transfer`) that bring what depends on
    parameters of other ranks; None: all.
    """

    tape: Tape
    ops: Sequence[Op]
    wrt: frozenset[str]
    grads: dict[str, str] = field(default_factory=dict)
    before_visit: Callable[[str], None] = lambda value: None
    label: str | None = None
    live: Collection[Transfer] | None = None
    active: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.active = active_values(self.tape.graph, self.ops, self.wrt, self.live)

    def run(self) -> dict[str, str]:
        """Writes the backward ops; the gradients of ``wrt`` that there are, by value."""
        for op in reversed(self.ops):
            if any(v in self.grads for v in op.outputs) or op.is_(SEND, RECV, domain=GE_DOMAIN):
                self._visit(op)
        return {value: self.grads[value] for value in self.grads if value in self.wrt}

    def _visit(self, op: Op) -> None:
        tape = self.tape
        wanted = tuple(bool(v) and v in self.active for v in op.inputs)
        received = op.is_(RECV, domain=GE_DOMAIN) and op.outputs[0] in self.active
        if not any(wanted) and not received:
            return
        grads = tuple(self.grads.get(v) if v else None for v in op.outputs)
        self.before_visit(next((g for g in grads if g), ""))
        tape.info = replace(op.info, phase=BACKWARD, sources=(), label=self.label)
        tape.stem = f"grad/{op.name}"
        found = rule_of(op)(Site(tape, op, grads, wanted))
        for index in sorted(found):
            if wanted[index]:
                self._add(op.inputs[index], found[index])
        for value in op.outputs:
            if value not in self.wrt:
                self.grads.pop(value, None)

    def _add(self, value: str, grad: str) -> None:
        known = self.grads.get(value)
        self.grads[value] = grad if known is None else self.tape.add(known, grad)


def transfer(op: Op) -> Transfer:
    """What both sides of a transfer between ranks have in common: communicator and tag."""
    return str(op.attr("communicator", "")), str(op.attr("tag", ""))


def active_values(
    graph: Graph,
    ops: Iterable[Op],
    wrt: Iterable[str],
    live: Collection[Transfer] | None = None,
) -> set[str]:
    """The float values that depend on any of ``wrt``, these among them.

    What comes from another rank (Recv) depends on the parameters there, if it is ``live``.
    """
    found = set(wrt)
    for op in ops:
        received = op.is_(RECV, domain=GE_DOMAIN) and (live is None or transfer(op) in live)
        if received or any(v in found for v in graph.reads(op)):
            found.update(v for v in op.outputs if v and _is_float(graph, v))
    return found


def live_transfers(parts: Sequence[tuple[Graph, Iterable[str]]]) -> set[Transfer]:
    """The transfers that carry what depends on parameters, of graphs of ranks and these there."""
    found: set[Transfer] = set()
    before = -1
    while len(found) > before:
        before = len(found)
        for graph, weights in parts:
            active = active_values(graph, graph.topological(), weights, found)
            sends = [op for op in graph.ops if op.is_(SEND, domain=GE_DOMAIN)]
            found.update(transfer(op) for op in sends if op.inputs[0] in active)
    return found


def _is_float(graph: Graph, value: str) -> bool:
    kind = graph.tensor(value)
    return kind is not None and kind.dtype.is_float


def gradients(graph: Graph, seeds: Mapping[str, str], wrt: Iterable[str]) -> dict[str, str]:
    """The gradients of ``wrt``, given those of results (``seeds``: value and its gradient).

    Extends ``graph``, whose sizes must be bound, in place; a value that no seed depends on has
    none. ModelError names an op without a rule.
    """
    run = Backward(Tape(graph), graph.topological(), frozenset(wrt), dict(seeds))
    return run.run()
