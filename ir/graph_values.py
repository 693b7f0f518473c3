"""Values of a graph, and the upkeep of its index; `graph.Graph` adds the edits of ops.

The index (uses of each value, edges of the multigraph) is changed here only: each use is one
entry of ``_uses`` and, where an op makes the value, one edge keyed by (value, slot).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph_base import GraphBase, State, Use
from gecompiler.ir.op import Op
from gecompiler.ir.types import ValueType

CONTROL_KEY = ("", -1)
"""The key of a control edge in the multigraph."""


class GraphValues(GraphBase):
    """Inputs, outer values, constants, types, outputs, states. Use `Graph`."""

    def fresh(self, stem: str) -> str:
        """A name that no value and no op here has: ``stem``, else ``stem_1``, ..."""
        if stem and self._is_free(stem):
            return stem
        stem = stem or "v"
        count = self._counters.get(stem, 0)
        while True:
            count += 1
            name = f"{stem}_{count}"
            if self._is_free(name):
                self._counters[stem] = count
                return name

    def _is_free(self, name: str) -> bool:
        taken = name in self._uses or name in self._ops
        return not taken and name not in self._reserved

    def reserve(self, other: GraphBase) -> None:
        """Keeps `fresh` from names of ``other``, also of what is removed here later."""
        self._reserved |= {*other._uses, *other._ops}

    def _claim(self, value: str, what: str) -> None:
        if not value:
            raise GraphError(f"{what} needs a name", where=self.name)
        if value in self._uses:
            raise GraphError(f"value {value!r} exists already", where=self.name)

    def _require(self, value: str) -> None:
        if value not in self._uses:
            raise GraphError(f"no value {value!r}", where=self.name)

    def _declare(self, value: str, type_: ValueType) -> None:
        self._uses[value] = {}
        self._types[value] = type_

    def add_input(self, name: str, type_: ValueType = None) -> str:
        """Appends an input."""
        self._claim(name, "an input")
        self._inputs[name] = None
        self._declare(name, type_)
        return name

    def add_outer(self, name: str, type_: ValueType = None) -> str:
        """Declares a value that this body takes from the graph around it."""
        self._claim(name, "an outer value")
        self._outer[name] = None
        self._declare(name, type_)
        return name

    def add_constant(self, name: str, constant: Constant) -> str:
        """Adds a constant under that name (see `fresh`)."""
        self._claim(name, "a constant")
        self._constants[name] = constant
        self._declare(name, constant.type)
        return name

    def set_constant(self, name: str, constant: Constant) -> None:
        """Puts another constant in the place of one, of the same element type and rank."""
        old = self._constants.get(name)
        if old is None:
            raise GraphError(f"no constant {name!r}", where=self.name)
        same = old.type.dtype is constant.type.dtype and old.type.rank == constant.type.rank
        if not same:
            raise GraphError(f"constant {name!r} is {old.type}, not {constant.type}")
        self._constants[name] = constant
        self._types[name] = constant.type

    def constant_of(self, stem: str, array: object) -> str:
        """Adds a constant holding ``array`` under a fresh name and returns the name."""
        return self.add_constant(self.fresh(stem), Constant.of(array))

    def remove_input(self, name: str) -> None:
        """Removes an input that nothing uses and no state feeds."""
        if any(state.input == name for state in self._states):
            raise GraphError(f"input {name!r} holds a declared state", where=self.name)
        self._remove_value(name, self._inputs, "input")

    def remove_outer(self, name: str) -> None:
        """Takes back that this body takes a value from around it; nothing may use it."""
        self._remove_value(name, self._outer, "outer value")

    def remove_constant(self, name: str) -> None:
        """Removes a constant that nothing uses."""
        self._remove_value(name, self._constants, "constant")

    def _remove_value(
        self, name: str, table: dict[str, None] | dict[str, Constant], what: str
    ) -> None:
        if name not in table:
            raise GraphError(f"no {what} {name!r} to remove", where=self.name)
        if self._uses[name] or name in self._outputs:
            raise GraphError(f"value {name!r} is still used", where=self.name)
        del table[name], self._uses[name], self._types[name]

    def set_type(self, value: str, type_: ValueType) -> None:
        """Sets or refines a value's type. A constant's type is its data's and stays."""
        self._require(value)
        if value in self._constants and type_ != self._types[value]:
            raise GraphError(f"constant {value!r} has a type of its own", where=self.name)
        self._types[value] = type_

    def set_outputs(self, outputs: Iterable[str]) -> None:
        """Declares which values are the outputs, in order; those of declared states stay."""
        names = list(outputs)
        for value in names:
            if value not in self._uses:
                raise GraphError(f"output {value!r} is no value of the graph", where=self.name)
        if len(set(names)) < len(names):
            raise GraphError("an output is named twice", where=self.name)
        for state in self._states:
            if state.output not in names:
                raise GraphError(
                    f"output {state.output!r} hands on the declared state {state.input!r}",
                    where=self.name,
                    hint="change the states first (set_states)",
                )
        self._outputs = names

    def set_states(self, states: Iterable[State]) -> None:
        """Declares the state: each pairs an input with an output, each of them once."""
        found = tuple(states)
        for state in found:
            if state.input not in self._inputs or state.output not in self._outputs:
                raise GraphError(
                    f"state {state.input!r} -> {state.output!r} must pair an input with an output",
                    where=self.name,
                )
        for names in ([s.input for s in found], [s.output for s in found]):
            if len(set(names)) < len(names):
                raise GraphError("two states share an input or an output", where=self.name)
        self._states = found

    # ---------------------------------------------------------------- the index

    def _check_reads(self, op: Op, also: Container[str] = ()) -> None:
        for value in self.reads(op):
            if value not in self._uses and value not in also:
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

    def _link(self, slots: Iterable[tuple[str, Use]]) -> None:
        for value, use in slots:
            self._uses[value][use] = None
            self._connect(value, use)

    def _unlink(self, slots: Iterable[tuple[str, Use]]) -> None:
        for value, use in slots:
            del self._uses[value][use]
            self._disconnect(value, use)

    def _connect(self, value: str, use: Use) -> None:
        maker = self._producer.get(value)
        if maker is not None:
            self._net.add_edge(maker, use.op, key=(value, use.slot), tensor=value)

    def _disconnect(self, value: str, use: Use) -> None:
        maker = self._producer.get(value)
        if maker is not None:
            self._net.remove_edge(maker, use.op, key=(value, use.slot))
