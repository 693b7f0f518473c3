"""The Graph: what is computed. One private networkx multigraph and an index of values.

Nodes are ops; an edge runs from an op to each use of what it produces, keyed by the use.
Values have names; each is a graph input, a constant, an op's output, or, in the body of an
``If``/``Loop``/``Scan``, taken from the graph around it (``outer``).

All edits go through the methods here. Each checks before it changes anything, so a refused
edit (`GraphError`) leaves the graph as it was. Two properties cost more than an edit may:
that there is no cycle, and that types agree; those are `verify`'s, which the pass manager
calls after every pass. Every order is that of insertion or of the inputs, hence the same in
every run. Edits cost O(degree), except where a docstring says otherwise.

A body (a Graph in an op's attribute) is part of that op and as immutable: to change it, edit
a copy and put it in with `Graph.replace_op`.
"""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph_base import State, Use
from gecompiler.ir.graph_ops import GraphOps
from gecompiler.ir.op import Op

__all__ = ["Graph", "State", "Use"]


class Graph(GraphOps):
    """A computation. See the module's docstring; `gecompiler.ir.parse` reads its text form."""

    def replace_uses(self, old: str, new: str, *, outputs: bool = True) -> int:
        """Makes every use of ``old``, also within bodies, read ``new``; returns how many.

        A graph output keeps its name: with ``outputs`` it becomes ``new`` under the old name if
        that can be done by renaming, else an Identity is put between (see `rename_output`).
        """
        self._require(old)
        self._require(new)
        if old == new:
            return 0
        if self._replacements is not None:
            self._replacements[new] = self._replacements.get(old, old)
        moves_output = outputs and old in self._outputs
        if moves_output:
            self._check_output_moves(old)
        self._order = None
        slots: dict[str, list[Use]] = {}
        for use in self._uses[old]:
            slots.setdefault(use.op, []).append(use)
        for name, uses in slots.items():
            op = reading(self._ops[name], old, new)
            for use in uses:
                self._disconnect(old, use)
                self._uses[new][use] = None
                self._connect(new, use)
            self._ops[name] = op
        count = len(self._uses[old]) + moves_output
        self._uses[old] = {}
        if moves_output:
            self.rename_output(old, new)
        return count

    def record_replacements(self) -> dict[str, str]:
        """A table that from now on learns what stands for what: new value, value it replaced."""
        self._replacements = {}
        return self._replacements

    def rename_output(self, old: str, new: str) -> None:
        """Makes the graph output named ``old`` carry what ``new`` holds, under the name ``old``.

        ``new``, if it is made by an op and is no output itself, takes the name ``old`` over
        (the old value takes a fresh name); otherwise an Identity copies it. Output names are
        the interface of a model and never change; hence GraphError for an output that is an
        input as well. Only in a body, whose outputs go by position, an outer value that is
        output gives its place to ``new``.
        """
        self._require(new)
        self._check_output_moves(old)
        if old == new:
            return
        position = self._outputs.index(old)
        if old in self._outer:
            if new in self._outputs:
                new = self.emit("Identity", [new], self._types[new], stem=f"{new}_copy")
            self._outputs[position] = new
            return
        self._rename_value(old, self.fresh(f"{old}_before"))
        if new in self._producer and new not in self._outputs:
            self._rename_value(new, old)
        else:
            op = Op(self.fresh(f"{old}_copy"), "Identity", (new,), (old,))
            self.add_op(op, [self._types[new]])
        self._outputs[position] = old

    def _check_output_moves(self, value: str) -> None:
        if value not in self._outputs:
            raise GraphError(f"value {value!r} is no output", where=self.name)
        if value in self._inputs:
            raise GraphError(
                f"output {value!r} is an input as well: under that name it carries nothing else",
                where=self.name,
            )

    def rename_value(self, old: str, new: str) -> None:
        """Gives a value, also where it is state or an output, a new and unused name. O(uses)."""
        self._require(old)
        if old == new:
            return
        self._rename_value(old, new)
        known = {old: new}
        self._states = tuple(
            replace(s, input=known.get(s.input, s.input), output=known.get(s.output, s.output))
            for s in self._states
        )

    def _rename_value(self, old: str, new: str) -> None:
        """Gives a value a new, unused name everywhere. O(uses + outputs)."""
        self._claim(new, "a value")
        self._order = None
        uses = self._uses[old]
        for use in uses:
            self._disconnect(old, use)
        self._uses[new] = self._uses.pop(old)
        self._types[new] = self._types.pop(old)
        for ordered in (self._inputs, self._outer, self._constants):
            _rename_key(ordered, old, new)
        if old in self._producer:
            maker = self._ops[self._producer.pop(old)]
            self._producer[new] = maker.name
            outputs = tuple(new if v == old else v for v in maker.outputs)
            self._ops[maker.name] = maker.with_(outputs=outputs)
        for name in dict.fromkeys(use.op for use in uses):
            self._ops[name] = reading(self._ops[name], old, new)
        for use in uses:
            self._connect(new, use)
        self._outputs = [new if v == old else v for v in self._outputs]

    # ---------------------------------------------------------------- whole graph

    def copy(self) -> Graph:
        """An independent graph with the same content (ops and constants are shared: immutable)."""
        twin = Graph(self.name)
        twin.opsets, twin.metadata = dict(self.opsets), dict(self.metadata)
        twin._inputs, twin._outer = dict(self._inputs), dict(self._outer)
        twin._outputs, twin._constants = list(self._outputs), dict(self._constants)
        twin._types, twin._producer = dict(self._types), dict(self._producer)
        twin._ops = dict(self._ops)
        twin._uses = {value: dict(uses) for value, uses in self._uses.items()}
        twin._controls, twin._states = dict(self._controls), self._states
        twin._counters, twin._reserved = dict(self._counters), self._reserved
        twin._net = self._net.copy()
        twin._order, twin._verified = self._order, dict(self._verified)
        return twin

    def verify(self) -> None:
        """Raises GraphError, naming op and value, when an invariant does not hold."""
        from gecompiler.ir.verify import verify_graph

        verify_graph(self)

    def __str__(self) -> str:
        from gecompiler.ir.text import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self._ops)} ops>"


def reading(op: Op, old: str, new: str) -> Op:
    """The op with ``new`` read, also by its bodies, where it read ``old``."""
    inputs = tuple(new if v == old else v for v in op.inputs)
    return op.with_(inputs=inputs).with_bodies(lambda body: _recaptured(body, old, new))


def _recaptured(body: Graph, old: str, new: str) -> Graph:
    if old not in body._outer:
        return body
    twin = body.copy()
    if new in twin._outer:
        twin.replace_uses(old, new)
        twin.remove_outer(old)
        return twin
    if new in twin._uses:  # a value of the body's own that happens to have that name
        twin._rename_value(new, twin.fresh(f"{new}_inner"))
    twin._rename_value(old, new)
    return twin


def _rename_key(table: dict[str, None] | dict[str, Constant], old: str, new: str) -> None:
    if old in table:
        items = [(new if k == old else k, v) for k, v in table.items()]
        table.clear()
        table.update(items)  # type: ignore[arg-type]
