"""The Graph: what is computed. One private networkx multigraph and an index of values.

Nodes are ops; an edge runs from an op to each use of what it produces, keyed by the use.
Values have names; each is a graph input, a constant, an op's output, or, in the body of an
``If``/``Loop``/``Scan``, taken from the graph around it (``outer``).

All edits go through the methods here. Each checks before it changes anything, so a refused
edit (`GraphError`) leaves the graph as it was. Two properties cost more than an edit may:
that there is no cycle, and that types agree; those are `verify`'s, which the pass manager
calls after every pass. Every order is that of insertion or of the inputs, hence the same in
every run. Edits cost O(degree), except where a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph_base import GraphBase, State, Use
from gecompiler.ir.op import NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.types import ValueType

__all__ = ["Graph", "State", "Use"]


class Graph(GraphBase):
    """A computation. See the module's docstring; `gecompiler.ir.parse` reads its text form."""

    # ---------------------------------------------------------------- values

    def fresh(self, stem: str) -> str:
        """A name that no value and no op here has: ``stem``, else ``stem_1``, ..."""
        if stem and stem not in self._uses and stem not in self._ops:
            return stem
        stem = stem or "v"
        count = self._counters.get(stem, 0)
        while True:
            count += 1
            name = f"{stem}_{count}"
            if name not in self._uses and name not in self._ops:
                self._counters[stem] = count
                return name

    def _claim(self, value: str, what: str) -> None:
        if not value:
            raise GraphError(f"{what} needs a name", where=self.name)
        if value in self._uses:
            raise GraphError(f"value {value!r} exists already", where=self.name)

    def add_input(self, name: str, type_: ValueType = None) -> str:
        """Appends an input."""
        self._claim(name, "an input")
        self._inputs[name] = None
        self._uses[name] = {}
        self._types[name] = type_
        return name

    def add_outer(self, name: str, type_: ValueType = None) -> str:
        """Declares a value that this body takes from the graph around it."""
        self._claim(name, "an outer value")
        self._outer[name] = None
        self._uses[name] = {}
        self._types[name] = type_
        return name

    def add_constant(self, name: str, constant: Constant) -> str:
        """Adds a constant under that name (see `fresh`)."""
        self._claim(name, "a constant")
        self._constants[name] = constant
        self._uses[name] = {}
        self._types[name] = constant.type
        return name

    def constant_of(self, stem: str, array: object) -> str:
        """Adds a constant holding ``array`` under a fresh name and returns the name."""
        return self.add_constant(self.fresh(stem), Constant.of(array))

    def remove_input(self, name: str) -> None:
        """Removes an input that nothing uses."""
        self._remove_value(name, self._inputs)

    def remove_constant(self, name: str) -> None:
        """Removes a constant that nothing uses."""
        self._remove_value(name, self._constants)

    def _remove_value(self, name: str, table: dict[str, None] | dict[str, Constant]) -> None:
        if name not in table:
            raise GraphError(f"{name!r} is not here to be removed", where=self.name)
        if self._uses[name] or name in self._outputs:
            raise GraphError(f"value {name!r} is still used", where=self.name)
        del table[name], self._uses[name]
        self._types.pop(name, None)

    def set_type(self, value: str, type_: ValueType) -> None:
        """Sets or refines a value's type. A constant's type is its data's and stays."""
        if value not in self._uses:
            raise GraphError(f"no value {value!r}", where=self.name)
        if value in self._constants and type_ != self._types[value]:
            raise GraphError(f"constant {value!r} has a type of its own", where=self.name)
        self._types[value] = type_

    def set_outputs(self, outputs: Iterable[str]) -> None:
        """Declares which values are the outputs, in order."""
        names = list(outputs)
        for value in names:
            if value not in self._uses:
                raise GraphError(f"output {value!r} is no value of the graph", where=self.name)
        if len(set(names)) < len(names):
            raise GraphError("an output is named twice", where=self.name)
        self._outputs = names

    def set_states(self, states: Iterable[State]) -> None:
        """Declares the state: each pairs an input with an output."""
        found = tuple(states)
        for state in found:
            if state.input not in self._inputs or state.output not in self._outputs:
                raise GraphError(
                    f"state {state.input!r} -> {state.output!r} must pair an input with an output",
                    where=self.name,
                )
        self._states = found

    # ---------------------------------------------------------------- ops

    def add_op(self, op: Op, types: Iterable[ValueType] = ()) -> Op:
        """Inserts an op whose inputs exist and whose outputs do not; ``types`` are its outputs'."""
        if not op.name or op.name in self._ops:
            raise GraphError(f"op name {op.name!r} is empty or taken", where=self.name)
        self._check_reads(op)
        named = [v for v in op.outputs if v]
        for value in named:
            self._claim(value, "an output")
        if len(set(named)) < len(named):
            raise GraphError(f"op {op.name!r} names an output twice", where=self.name)
        self._ops[op.name] = op
        self._net.add_node(op.name)
        known = list(types)
        for i, value in enumerate(op.outputs):
            if value:
                self._uses[value] = {}
                self._producer[value] = op.name
                self._types[value] = known[i] if i < len(known) else None
        self._link(op)
        return op

    def emit(
        self,
        op_type: str,
        inputs: Iterable[str],
        type_: ValueType = None,
        *,
        attrs: Mapping[str, Attr] = NO_ATTRS,
        domain: str = "",
        info: OpInfo = NO_INFO,
        stem: str = "",
        outputs: int = 1,
        types: Iterable[ValueType] = (),
    ) -> str:
        """Adds an op with fresh names and returns its first output's name.

        ``stem`` gives the names (default: the op type); with ``outputs`` above 1 give ``types``.
        """
        stem = stem or op_type
        name = self.fresh(stem)
        values: list[str] = []
        for i in range(outputs):
            candidate = self.fresh(f"{stem}_out{i or ''}")
            while candidate in values or candidate == name:  # pragma: no cover - fresh is unique
                candidate = self.fresh(candidate)
            values.append(candidate)
        op = Op(name, op_type, tuple(inputs), tuple(values), attrs, domain, info)
        self.add_op(op, list(types) or [type_])
        return values[0]

    def remove_op(self, name: str) -> None:
        """Removes an op whose outputs nothing uses, and its control edges."""
        op = self.op(name)
        for value in op.outputs:
            if value and (self._uses[value] or value in self._outputs):
                raise GraphError(
                    f"op {name!r} cannot go: its output {value!r} is still used", where=self.name
                )
        self._unlink(op)
        for pair in list(self._net_controls(name)):
            self._controls.pop(pair, None)
        self._net.remove_node(name)
        for value in op.outputs:
            if value:
                del self._uses[value], self._producer[value]
                self._types.pop(value, None)
        del self._ops[name]

    def _net_controls(self, name: str) -> Iterator[tuple[str, str]]:
        for before, after in self._controls:
            if name in (before, after):
                yield before, after

    def replace_op(self, name: str, op: Op) -> Op:
        """Puts ``op`` in the place of the op ``name``: same outputs, anything else may differ.

        The op keeps its position in the order of insertion unless its name changes.
        """
        old = self.op(name)
        if op.outputs != old.outputs:
            raise GraphError(f"the op in place of {name!r} must have its outputs", where=self.name)
        if op.name != name and (not op.name or op.name in self._ops):
            raise GraphError(f"op name {op.name!r} is empty or taken", where=self.name)
        self._check_reads(op)
        self._unlink(old)
        if op.name == name:
            self._ops[name] = op
            self._link(op)
            self._relink_outputs(op)
            return op
        controls = list(self._net_controls(name))
        for value in op.outputs:
            if value:
                self._producer[value] = op.name
        self._net.remove_node(name)
        del self._ops[name]
        self._net.add_node(op.name)
        self._ops[op.name] = op
        self._link(op)
        self._relink_outputs(op)
        for before, after in controls:
            del self._controls[before, after]
            self.add_control(
                op.name if before == name else before, op.name if after == name else after
            )
        return op

    def set_input(self, name: str, index: int, value: str) -> Op:
        """Makes input ``index`` of an op read another value (``""`` leaves it out)."""
        op = self.op(name)
        if not 0 <= index < len(op.inputs):
            raise GraphError(f"op {name!r} has no input {index}", where=self.name)
        inputs = (*op.inputs[:index], value, *op.inputs[index + 1 :])
        return self.replace_op(name, op.with_(inputs=inputs))

    def replace_uses(self, old: str, new: str, *, outputs: bool = True) -> int:
        """Makes every use of ``old``, also within bodies, read ``new``; returns how many.

        A graph output keeps its name: with ``outputs`` it becomes ``new`` under the old name if
        that can be done by renaming, else an Identity is put between (see `rename_output`).
        """
        for value in (old, new):
            if value not in self._uses:
                raise GraphError(f"no value {value!r}", where=self.name)
        if old == new:
            return 0
        count = 0
        for use in list(self._uses[old]):
            if use not in self._uses[old]:
                continue
            op = self._ops[use.op]
            if use.slot >= 0:
                inputs = tuple(new if v == old else v for v in op.inputs)
                count += sum(v == old for v in op.inputs)
                op = op.with_(inputs=inputs)
            if op.attrs and any(old in body.outer for body in op.bodies):
                attrs = {k: _captured(v, old, new) for k, v in op.attrs.items()}
                op = op.with_(attrs=attrs)
                count += 1
            self.replace_op(use.op, op)
        if outputs and old in self._outputs:
            self.rename_output(old, new)
            count += 1
        return count

    def rename_output(self, old: str, new: str) -> None:
        """Makes the graph output named ``old`` carry what ``new`` holds, under the name ``old``.

        ``new``, if it is made by an op and is no output itself, takes the name ``old`` over
        (the old value takes a fresh name); otherwise an Identity copies it. Output names are
        the interface of a model and never change.
        """
        aside = self.fresh(f"{old}_before")
        self._rename_value(old, aside)
        if self.producer(new) is not None and new not in self._outputs:
            self._outputs[self._outputs.index(aside)] = new
            self._rename_value(new, old)
            return
        position = self._outputs.index(aside)
        op = Op(self.fresh(f"{old}_copy"), "Identity", (new,), (old,))
        self.add_op(op, [self._types.get(new)])
        self._outputs[position] = old

    def _rename_value(self, old: str, new: str) -> None:
        """Gives a value a new, unused name everywhere. O(uses + outputs)."""
        self._claim(new, "a value")
        users = [self._ops[n] for n in dict.fromkeys(u.op for u in self._uses[old])]
        maker = self.producer(old)
        for op in users:
            self._unlink(op)
        self._uses[new] = self._uses.pop(old)
        self._types[new] = self._types.pop(old, None)
        for table in (self._inputs, self._outer, self._constants):
            _rename_key(table, old, new)
        if maker is not None:
            del self._producer[old]
            self._producer[new] = maker.name
            current = self._ops[maker.name]
            outputs = tuple(new if v == old else v for v in current.outputs)
            self._ops[maker.name] = current.with_(outputs=outputs)
        for op in users:
            current = self._ops[op.name]
            attrs = current.attrs
            if attrs and current.bodies:
                attrs = {k: _captured(v, old, new) for k, v in attrs.items()}
            inputs = tuple(new if v == old else v for v in current.inputs)
            self._ops[op.name] = current.with_(inputs=inputs, attrs=attrs)
            self._link(self._ops[op.name])
        self._outputs = [new if v == old else v for v in self._outputs]

    def add_control(self, before: str, after: str) -> None:
        """Orders two ops that data does not order."""
        self.op(before), self.op(after)
        if before == after:
            raise GraphError(f"op {before!r} cannot wait for itself", where=self.name)
        if (before, after) not in self._controls:
            self._controls[before, after] = None
            self._net.add_edge(before, after, key=("", -1), tensor=None)

    def _check_reads(self, op: Op) -> None:
        for value in self.reads(op):
            if value not in self._uses:
                raise GraphError(
                    f"op {op.name!r} ({op.kind}) reads {value!r}, which nothing here makes",
                    where=self.name,
                )

    def _slots(self, op: Op) -> Iterator[tuple[str, Use]]:
        for i, value in enumerate(op.inputs):
            if value:
                yield value, Use(op.name, i)
        if op.attrs:
            for value in self.captures(op):
                yield value, Use(op.name, -1)

    def _link(self, op: Op) -> None:
        for value, use in self._slots(op):
            self._uses[value][use] = None
            maker = self._producer.get(value)
            if maker is not None:
                self._net.add_edge(maker, op.name, key=(value, use.slot), tensor=value)

    def _relink_outputs(self, op: Op) -> None:
        for value in op.outputs:
            for use in self._uses.get(value, ()):
                self._net.add_edge(op.name, use.op, key=(value, use.slot), tensor=value)

    def _unlink(self, op: Op) -> None:
        for value, use in self._slots(op):
            self._uses[value].pop(use, None)
            maker = self._producer.get(value)
            if maker is not None and self._net.has_edge(maker, op.name, key=(value, use.slot)):
                self._net.remove_edge(maker, op.name, key=(value, use.slot))

    # ---------------------------------------------------------------- whole graph

    def copy(self) -> Graph:
        """An independent graph with the same content (ops and constants are shared: immutable)."""
        twin = Graph(self.name, self.opsets)
        twin.metadata = dict(self.metadata)
        twin._inputs, twin._outer = dict(self._inputs), dict(self._outer)
        twin._outputs, twin._constants = list(self._outputs), dict(self._constants)
        twin._types, twin._producer = dict(self._types), dict(self._producer)
        twin._ops = dict(self._ops)
        twin._uses = {value: dict(uses) for value, uses in self._uses.items()}
        twin._controls, twin._states = dict(self._controls), self._states
        twin._counters = dict(self._counters)
        twin._net = self._net.copy()
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


def _captured(value: Attr, old: str, new: str) -> Attr:
    """An attribute in which bodies take ``new`` where they took ``old``."""
    if isinstance(value, Graph) and old in value.outer:
        body = value.copy()
        if body.has_value(new):
            if new in body._outer:
                body.replace_uses(old, new)
                del body._outer[old], body._uses[old]
                return body
            body._rename_value(new, body.fresh(f"{new}_inner"))
        body._rename_value(old, new)
        return body
    if isinstance(value, tuple) and any(isinstance(v, Graph) for v in value):
        return tuple(_captured(v, old, new) if isinstance(v, Graph) else v for v in value)  # type: ignore[return-value]
    return value


def _rename_key(table: dict[str, None] | dict[str, Constant], old: str, new: str) -> None:
    if old in table:
        items = [(new if k == old else k, v) for k, v in table.items()]
        table.clear()
        table.update(items)  # type: ignore[arg-type]
