"""Rows of a table that ranks share out, where a graph looks them up by numbers it computes.

Experts as current exporters write them: a token's numbers of experts pick its weights from a
stack, and batched products apply them. A rank holds some experts. For every row it picks one of
its own, the wrong one where the row's expert lies elsewhere, and goes on as if nothing were; what
comes of such rows is set to zero before rows are mixed, and the sum over the ranks is the model's.
Embeddings are shared out by words in the same way (Megatron-LM's vocabulary-parallel embedding,
Shoeybi et al. 2019): there the rows that are looked up are the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph, reading
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Note
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.rank_rows import RankGraph, RankRows
from gecompiler.passes.parallel.row_labels import keeps_apart, labels_between, place_of

_VIEWS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
_SCALES = ("MatMul", "Einsum", "Mul", "Div")


@dataclass(frozen=True)
class _Rows:
    """Which dims of a value are the rows that were looked up: from ``first`` to before ``last``."""

    root: str
    first: int
    last: int


def share_looked_up_experts(found: RankGraph, axes: str, ranks: int) -> bool:
    """Shares out stacks of matrices that are looked up by computed numbers; whether there are any.

    What is looked up by the same numbers beside them (biases) goes with them.
    """
    graph, every = found.graph, [op for op in found.graph.topological() if _looks_up(found, op)]
    stacked = {_root(graph, op.inputs[1]) for op in every if _rank(graph, op.inputs[0]) > 2}
    mine = [op for op in every if _root(graph, op.inputs[1]) in stacked]
    if mine:
        _Sharing(found, axes, ranks, carry=True).share(mine)
    return bool(mine)


def share_embeddings(found: RankGraph, axes: str, ranks: int, largest: int = 0) -> bool:
    """Shares out the rows of tables that inputs of the graph look up; whether there are any."""
    graph = found.graph
    mine = [
        op
        for op in graph.topological()
        if _looks_up(found, op)
        and _rank(graph, op.inputs[0]) == 2
        and _root(graph, op.inputs[1]) in graph.inputs
        and graph.constants[op.inputs[0]].type.sizes[0] >= max(ranks, largest)
    ]
    if mine:
        _Sharing(found, axes, ranks, carry=False).share(mine)
    return bool(mine)


def _looks_up(found: RankGraph, op: Op) -> bool:
    """Whether an op picks rows of a constant, by numbers that are computed."""
    graph = found.graph
    if op.is_("Gather"):
        fits = not op.attr("axis", 0)
    elif op.is_("GatherND"):
        shape = _sizes(graph, op.inputs[1])
        fits = not op.attr("batch_dims", 0) and bool(shape) and shape[-1] == 1
    else:
        return False
    table, index, made = op.inputs[0], op.inputs[1], _sizes(graph, op.outputs[0])
    if not fits or table not in graph.constants or table in found.rows or not made:
        return False
    if op.outputs[0] in graph.outputs:
        return False
    return index not in graph.constants and _rank(graph, table) > 1


def _sizes(graph: Graph, value: str) -> tuple[int, ...]:
    type_ = graph.tensor(value)
    return type_.sizes if type_ is not None and type_.is_static else ()


def _rank(graph: Graph, value: str) -> int:
    return len(graph.constants[value].type.sizes)


def _root(graph: Graph, value: str) -> str:
    """The value that this one only gives another shape."""
    maker = graph.producer(value)
    while maker is not None and maker.is_(*_VIEWS):
        value = maker.inputs[0]
        maker = graph.producer(value)
    return value


class _Sharing:
    """Rewrites lookups, and what follows them up to where rows are mixed (``carry``)."""

    def __init__(self, found: RankGraph, axes: str, ranks: int, *, carry: bool) -> None:
        self._found, self._graph, self._axes, self._ranks = found, found.graph, axes, ranks
        self._carry = carry
        self._rows: dict[str, _Rows] = {}
        self._ends: dict[str, list[tuple[str, int]]] = {}
        self._numbers: dict[tuple[str, int], tuple[str, str]] = {}
        self._held: dict[str, int] = {}
        self._taken: list[tuple[str, str]] = []

    def share(self, lookups: Sequence[Op]) -> None:
        order = self._graph.topological()
        names = {op.name for op in lookups}
        for op in order:
            if op.name in names:
                self._look_up(op)
            elif self._carry and any(value in self._rows for value in self._graph.reads(op)):
                self._follow(op)
        for value, slots in self._ends.items():
            own = self._own_rows(value)
            for op_name, slot in slots:
                if slot >= 0:
                    self._graph.set_input(op_name, slot, own)
                else:
                    op = self._graph.op(op_name)
                    self._graph.replace_op(op_name, reading(op, value, own))
        for name, table in self._taken:
            self._found.keep_name(name, table)

    # ------------------------------------------------------------ lookups

    def _look_up(self, op: Op) -> None:
        graph, table, index = self._graph, self._graph.constants[op.inputs[0]], op.inputs[1]
        root, count = _root(graph, index), table.type.sizes[0]
        rows = math.prod(_sizes(graph, index))
        alike = self._held.setdefault(root, count) == count
        if rows < 2 or not alike or math.prod(_sizes(graph, root)) != rows:
            self._found.notes.append(
                Note("experts", op.name, f"{count} rows stay whole: {rows} of them are looked up")
            )
            return
        held = -(-count // self._ranks)
        first = Constant(
            TensorType(table.type.dtype, (held, *table.type.sizes[1:])),
            source=None if table.data is None and table.source is None else _First(table),
        )
        mine = self._found.take_rows(op.inputs[0], RankRows(table, self._axes), first)
        self._taken.append((mine, op.inputs[0]))
        _, local = self._numbers_of(root, count)
        shaped = self._reshaped(local, _sizes(graph, index))
        graph.replace_op(op.name, op.with_(inputs=(mine, shaped)))
        last = len(_sizes(graph, index)) - (1 if op.is_("GatherND") else 0)
        self._rows[op.outputs[0]] = _Rows(root, 0, last)
        if not self._carry:
            self._ends[op.outputs[0]] = self._slots(op.outputs[0])

    def _numbers_of(self, root: str, count: int) -> tuple[str, str]:
        """Whether each row is the rank's own (bool), and the rank's number for it."""
        key = (root, count)
        if key not in self._numbers:
            graph, held = self._graph, -(-count // self._ranks)
            type_ = graph.tensor(root)
            assert type_ is not None
            starts = np.arange(self._ranks, dtype=type_.dtype.numpy) * held
            first = self._found.take_rows(
                f"first_{self._axes}",
                RankRows(Constant.of(starts), self._axes, self._ranks),
                Constant.of(starts[:1]),
            )
            zero = self._number(0, type_.dtype)
            moved = self._emit("Sub", [root, first], type_)
            yes = TensorType(DType.BOOL, type_.shape)
            below = self._emit("Less", [moved, zero], yes)
            inside = self._emit("Less", [moved, self._number(held, type_.dtype)], yes)
            own = self._emit("And", [self._emit("Not", [below], yes), inside], yes)
            local = self._emit("Where", [own, moved, zero], type_)
            self._numbers[key] = own, local
        return self._numbers[key]

    # ------------------------------------------------------------ what follows

    def _follow(self, op: Op) -> None:
        rows = self._carried(op)
        if rows is not None:
            self._rows.update(rows)
            return
        for slot, value in enumerate(op.inputs):
            if value in self._rows:
                self._ends.setdefault(value, []).append((op.name, slot))
        for value in self._graph.captures(op):
            if value in self._rows:
                self._ends.setdefault(value, []).append((op.name, -1))

    def _carried(self, op: Op) -> dict[str, _Rows] | None:
        """The rows of the outputs, where the op keeps rows apart."""
        graph = self._graph
        if any(value in graph.outputs for value in op.outputs) or graph.captures(op):
            return None
        try:
            found = signature(graph, op)
        except (NoSignatureError, GraphError):
            return None
        given = [(i, self._rows[v]) for i, v in enumerate(op.inputs) if v in self._rows]
        if len({rows.root for _, rows in given}) > 1 or not self._others_fit(op):
            return None
        labels = {labels_between(found.inputs[i], rows.first, rows.last) for i, rows in given}
        (wanted,) = labels if len(labels) == 1 else (None,)
        if not wanted or not keeps_apart(found, wanted):
            return None
        made: dict[str, _Rows] = {}
        for value, operand in zip(op.outputs, found.outputs, strict=True):
            place = place_of(operand, wanted)
            if place is None or not value:
                return None
            made[value] = _Rows(given[0][1].root, *place)
        return made

    def _others_fit(self, op: Op) -> bool:
        """What joins the rows may scale them; a sum with it belongs to all ranks."""
        if op.is_(*_SCALES):
            return True
        known = (*self._graph.constants, *self._rows)
        return all(not value or value in self._rows or value in known for value in op.inputs)

    def _slots(self, value: str) -> list[tuple[str, int]]:
        return [(use.op, max(use.slot, -1)) for use in self._graph.uses(value)]

    def _own_rows(self, value: str) -> str:
        """The value with zeros in the rows of other ranks: a part of the sum."""
        graph, rows = self._graph, self._rows[value]
        sizes, type_ = _sizes(graph, value), graph.tensor(value)
        assert type_ is not None
        own, _ = self._numbers_of(rows.root, self._held[rows.root])
        shape = [n if rows.first <= i < rows.last else 1 for i, n in enumerate(sizes)]
        zero = self._number(0, type_.dtype)
        made = self._emit("Where", [self._reshaped(own, shape), value, zero], type_)
        self._found.sums[made] = self._axes
        return made

    def _reshaped(self, value: str, shape: Sequence[int]) -> str:
        type_ = self._graph.tensor(value)
        assert type_ is not None
        if type_.sizes == tuple(shape):
            return value
        sizes = self._graph.constant_of(f"{value}_sizes", np.asarray(shape, np.int64))
        return self._emit("Reshape", [value, sizes], TensorType(type_.dtype, tuple(shape)))

    def _number(self, number: int, dtype: DType) -> str:
        constant = Constant.of(np.asarray(number, dtype.numpy), dtype)
        return self._graph.add_constant(self._graph.fresh("number"), constant)

    def _emit(self, op_type: str, inputs: list[str], type_: TensorType) -> str:
        return self._graph.emit(op_type, inputs, type_, stem=f"{self._axes}_{op_type.lower()}")


@dataclass(frozen=True)
class _First:
    """The first rows of a table."""

    table: Constant

    def load(self, type_: TensorType) -> np.ndarray:
        """The rows; MissingDataError where the model came without its weights."""
        return self.table.array()[: type_.sizes[0]]

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return "the first rows of a table"
