"""Edits of ops: adding, emitting, removing, replacing, ordering; `graph.Graph` adds the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph_values import CONTROL_KEY, GraphValues
from gecompiler.ir.op import NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.types import ValueType


class GraphOps(GraphValues):
    """Ops and the order between them. Use `Graph`."""

    def add_op(self, op: Op, types: Iterable[ValueType] = ()) -> Op:
        """Inserts an op whose inputs exist and whose outputs do not; ``types`` are its outputs'."""
        self._check_reads(op)
        self._check_new(op)
        self._insert(op, types)
        self._link(self._slots(op))
        return op

    def add_ops(self, ops: Iterable[tuple[Op, Iterable[ValueType]]]) -> None:
        """Inserts ops that may read one another in any order, each with its outputs' types."""
        added = list(ops)
        names: set[str] = set()
        made: set[str] = set()
        for op, _ in added:
            self._check_new(op)
            outputs = {v for v in op.outputs if v}
            if op.name in names or not made.isdisjoint(outputs):
                raise GraphError(f"op {op.name!r} or an output is given twice", where=self.name)
            names.add(op.name)
            made |= outputs
        for op, _ in added:
            self._check_reads(op, made)
        for op, types in added:
            self._insert(op, types)
        for op, _ in added:
            self._link(self._slots(op))

    def _check_new(self, op: Op) -> None:
        if not op.name or op.name in self._ops:
            raise GraphError(f"op name {op.name!r} is empty or taken", where=self.name)
        named = [v for v in op.outputs if v]
        for value in named:
            self._claim(value, "an output")
        if len(set(named)) < len(named):
            raise GraphError(f"op {op.name!r} names an output twice", where=self.name)

    def _insert(self, op: Op, types: Iterable[ValueType]) -> None:
        self._order = None
        self._ops[op.name] = op
        self._net.add_node(op.name)
        known = list(types)
        for i, value in enumerate(op.outputs):
            if value:
                self._declare(value, known[i] if i < len(known) else None)
                self._producer[value] = op.name

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
        self._order = None
        self._unlink(self._slots(op))
        for pair in self._controls_of(name):
            del self._controls[pair]
        self._net.remove_node(name)
        for value in op.outputs:
            if value:
                del self._uses[value], self._producer[value], self._types[value]
        del self._ops[name]

    def _controls_of(self, name: str) -> list[tuple[str, str]]:
        pairs = [(n, name) for n in self._net.pred[name]] + [
            (name, n) for n in self._net.succ[name]
        ]
        return [pair for pair in pairs if pair in self._controls]

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
        self._order = None
        if op.name == name:
            before, after = dict.fromkeys(self._slots(old)), dict.fromkeys(self._slots(op))
            self._unlink(slot for slot in before if slot not in after)
            self._link(slot for slot in after if slot not in before)
            self._ops[name] = op
            return op
        return self._replace_renamed(old, op)

    def _replace_renamed(self, old: Op, op: Op) -> Op:
        self._unlink(self._slots(old))
        controls = self._controls_of(old.name)
        self._net.remove_node(old.name)
        del self._ops[old.name]
        self._net.add_node(op.name)
        self._ops[op.name] = op
        for value in op.outputs:
            if value:
                self._producer[value] = op.name
                for use in self._uses[value]:
                    self._connect(value, use)
        self._link(self._slots(op))
        for pair in controls:
            del self._controls[pair]
            before, after = (op.name if n == old.name else n for n in pair)
            self.add_control(before, after)
        return op

    def set_input(self, name: str, index: int, value: str) -> Op:
        """Makes input ``index`` of an op read another value (``""`` leaves it out)."""
        op = self.op(name)
        if not 0 <= index < len(op.inputs):
            raise GraphError(f"op {name!r} has no input {index}", where=self.name)
        inputs = (*op.inputs[:index], value, *op.inputs[index + 1 :])
        return self.replace_op(name, op.with_(inputs=inputs))

    def add_control(self, before: str, after: str) -> None:
        """Orders two ops that data does not order."""
        self.op(before), self.op(after)
        if before == after:
            raise GraphError(f"op {before!r} cannot wait for itself", where=self.name)
        if (before, after) not in self._controls:
            self._order = None
            self._controls[before, after] = None
            self._net.add_edge(before, after, key=CONTROL_KEY, tensor=None)

    def remove_control(self, before: str, after: str) -> None:
        """Takes back an order between two ops."""
        if (before, after) not in self._controls:
            raise GraphError(f"no control from {before!r} to {after!r}", where=self.name)
        self._order = None
        del self._controls[before, after]
        self._net.remove_edge(before, after, key=CONTROL_KEY)
