"""Experts that an exporter wrote one after the other.

Each is a branch of its own: it reads the tokens and a routing that names the expert by a number,
has weights of its own, and ends in a term of a sum (an Add, or a scatter that adds). Branches of
one form are shared out: a rank keeps as many as fall to it, of which constants are its own rows of
the branches' tables, and its sum is a part of the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Note
from gecompiler.ir.types import TensorType
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.effects import has_side_effects
from gecompiler.passes.parallel.rank_rows import RankGraph, RankRows, Stacked

_SCATTERS = ("ScatterND", "ScatterElements")
_NUMBERED = ("Equal", "Gather", "GatherElements", "Add", "Sub", "Mul", "Div", "Where")
"""Ops that may read a number that differs between branches; others read sizes and axes."""


@dataclass(frozen=True)
class _Run:
    """Terms of one form, which follow each other in a sum.

    ``ends`` are what each adds: a value, of a scatter indices and updates. They are added to
    ``base`` (none where they are all there is), by ``links``.
    """

    ends: tuple[tuple[str, ...], ...]
    base: str
    links: tuple[Op, ...]


@dataclass
class _Branches:
    """What is behind the ends in step.

    ``slots`` are the constants that differ: the op of each branch, the input, what each reads.
    """

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    slots: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = field(default_factory=list)


def share_unrolled_experts(found: RankGraph, axes: str, ranks: int) -> bool:
    """Shares out branches that a sum ends and that differ by constants; whether there are any."""
    shared = False
    for links in list(_chains(found.graph)):
        for run in _runs(found.graph, links):
            branches = behind_all(found.graph, run.ends)
            if branches is None or not have_weights(found.graph, branches):
                continue
            if not _are_closed(found.graph, branches, run):
                continue
            shared = True
            if len(run.ends) % ranks == 0:
                _Sharing(found, axes, ranks).share(run, branches)
                continue
            message = f"{len(run.ends)} experts are not shared out over {ranks} ranks"
            found.notes.append(Note("experts", links[0].name, message))
    return shared


# ---------------------------------------------------------------- sums


def _chains(graph: Graph) -> Iterator[list[Op]]:
    """Runs of two and more additions of the same kind, each used by the next alone."""
    taken: set[str] = set()
    for op in graph.topological():
        if op.name in taken or not _adds(graph, op):
            continue
        links = [op]
        while (following := _next(graph, links[-1])) is not None:
            links.append(following)
        taken.update(link.name for link in links)
        if len(links) > 1:
            yield links


def _adds(graph: Graph, op: Op) -> bool:
    made = graph.tensor(op.outputs[0]) if op.outputs else None
    if made is None or not made.is_static or not made.dtype.is_float:
        return False
    if op.is_(*_SCATTERS):
        return str(op.attr("reduction", "none")) == "add"
    return op.is_("Add") and all(graph.tensor(v) == made for v in op.inputs)


def _next(graph: Graph, op: Op) -> Op | None:
    value = op.outputs[0]
    if not graph.single_use(value) or graph.is_output(value):
        return None
    (user,) = graph.users(value)
    first = user.inputs[:1] if user.is_(*_SCATTERS) else user.inputs
    alike = user.op_type == op.op_type and value in first and _adds(graph, user)
    return user if alike and (user.is_("Add") or user.attrs == op.attrs) else None


def _runs(graph: Graph, links: list[Op]) -> Iterator[_Run]:
    """The longest runs of terms that are made alike."""
    scatters = links[0].is_(*_SCATTERS)
    ends = [op.inputs[1:3] for op in links] if scatters else _addends(graph, links)
    first = 0 if scatters else 1  # the end that the first link adds
    at = 0
    while at < len(ends):
        end = at + 1
        while end < len(ends) and behind_all(graph, (ends[at], ends[end])) is not None:
            end += 1
        if end - at > 1:
            begin = max(at - first, 0)
            base = links[begin - 1].outputs[0] if begin else links[0].inputs[0]
            if not scatters:
                base = "" if at == 0 else ends[0][0] if at == 1 else links[at - 2].outputs[0]
            yield _Run(tuple(ends[at:end]), base, tuple(links[begin : end - first]))
        at = end


def _addends(graph: Graph, links: list[Op]) -> list[tuple[str, ...]]:
    """All terms of a chain of Adds, the two of the first in the order in which they go on."""
    found: list[tuple[str, ...]] = [(v,) for v in links[0].inputs]
    for before, op in pairwise(links):
        made = before.outputs[0]
        found.append((op.inputs[1] if op.inputs[0] == made else op.inputs[0],))
    alike = [behind_all(graph, (end, found[2])) is not None for end in found[:2]]
    if alike == [True, False]:
        found[:2] = reversed(found[:2])
    return found


def behind_all(graph: Graph, ends: Sequence[tuple[str, ...]]) -> _Branches | None:
    """The branches of those ends; None where they differ by more than constants."""
    found = _Branches()
    todo = [tuple(values) for values in zip(*ends, strict=True)]
    while todo:
        values = todo.pop()
        if len(set(values)) == 1:
            continue
        known = found.values.setdefault(values[0], values)
        if known is not values:
            if known != values:
                return None
            continue
        makers = [op for v in values if (op := graph.producer(v)) is not None]
        if len(makers) < len(values) or not _same_form(makers, values):
            return None
        behind = _read(graph, makers, found)
        if behind is None:
            return None
        todo += behind
    return found


def _read(graph: Graph, makers: Sequence[Op], found: _Branches) -> list[tuple[str, ...]] | None:
    """What the ops read in step; their constants that differ go to ``found``."""
    behind: list[tuple[str, ...]] = []
    for slot, value in enumerate(makers[0].inputs):
        row = tuple(op.inputs[slot] for op in makers)
        if not any(v in graph.constants for v in row):
            behind += [row] if value else []
        elif not _equal(graph, row):
            if not _may_differ(graph, makers[0], slot, row):
                return None
            found.slots.append((tuple(op.name for op in makers), slot, row))
    return behind


def _equal(graph: Graph, row: tuple[str, ...]) -> bool:
    """Whether those are one value, or small constants that hold the same."""
    if len(set(row)) == 1:
        return True
    constants = [graph.constant(v) for v in row]
    arrays = [None if c is None else c.small_array(64) for c in constants]
    first = arrays[0]
    return first is not None and all(
        a is not None and a.dtype == first.dtype and np.array_equal(a, first) for a in arrays
    )


def _same_form(makers: Sequence[Op], values: tuple[str, ...]) -> bool:
    first = makers[0]
    place = first.outputs.index(values[0])
    if first.bodies or has_side_effects(first):
        return False
    return all(
        op.kind == first.kind
        and op.attrs == first.attrs
        and op.outputs.index(value) == place
        and [bool(v) for v in op.inputs] == [bool(v) for v in first.inputs]
        for op, value in zip(makers, values, strict=True)
    )


def _may_differ(graph: Graph, op: Op, slot: int, row: tuple[str, ...]) -> bool:
    """Whether a constant there is data to the op: a size or an axis must be the same for all."""
    constants = [graph.constant(v) for v in row]
    types = {c.type for c in constants if c is not None}
    if None in constants or len(types) > 1:
        return False
    return types.pop().dtype.is_float or (op.is_(*_NUMBERED) and slot < 2)


def have_weights(graph: Graph, branches: _Branches) -> bool:
    """Whether two matrices and more are a branch's own: sharing out less is worth nothing."""
    own = {row for _, _, row in branches.slots}
    return sum(len(graph.constants[row[0]].type.sizes) > 1 for row in own) > 1


def _are_closed(graph: Graph, branches: _Branches, run: _Run) -> bool:
    """Whether nothing but the sum reads what a branch makes."""
    links = {op.name for op in run.links}
    for branch in zip(*branches.values.values(), strict=True):
        makers = {op.name: op for v in branch if (op := graph.producer(v)) is not None}
        for op in makers.values():
            for value in op.outputs:
                users = {use.op for use in graph.uses(value)} if value else set()
                if users - links - makers.keys() or graph.is_output(value):
                    return False
    return True


# ---------------------------------------------------------------- sharing


class _Sharing:
    """Keeps the branches of the first rank, with the others' constants in its tables."""

    def __init__(self, found: RankGraph, axes: str, ranks: int) -> None:
        self._found, self._graph, self._axes, self._ranks = found, found.graph, axes, ranks

    def share(self, run: _Run, branches: _Branches) -> None:
        """Makes the sum of the rank's own branches; the model's is the sum of all ranks'."""
        graph, last = self._graph, run.links[-1].outputs[0]
        count = len(run.ends) // self._ranks
        for place in range(count):
            self._rewire(branches, place, count)
        type_ = graph.tensor(last)
        assert type_ is not None
        whole = total = self._total(run, count, type_)
        self._found.sums[total] = self._axes
        if run.base:
            whole = graph.emit("Add", [run.base, total], type_, stem=f"{run.links[0].name}_shared")
        if graph.is_output(last):
            graph.rename_output(last, whole)
            return
        graph.replace_uses(last, whole)
        remove_dead(graph, [last])

    def _total(self, run: _Run, count: int, type_: TensorType) -> str:
        graph, link, kept = self._graph, run.links[0], run.ends[:count]
        if link.is_(*_SCATTERS):
            zeros = np.zeros(type_.sizes, type_.dtype.numpy)
            total = graph.add_constant(graph.fresh("zeros"), Constant.of(zeros, type_.dtype))
            for index, updates in kept:
                inputs = [total, index, updates]
                total = graph.emit(link.op_type, inputs, type_, attrs=link.attrs, stem="own_sum")
            return total
        total = kept[0][0]
        for (term,) in kept[1:]:
            total = graph.emit("Add", [total, term], type_, stem="own_sum")
        if len(kept) > 1:
            return total
        return graph.emit("Identity", [total], type_, stem="own_sum")

    def _rewire(self, branches: _Branches, place: int, count: int) -> None:
        """Lets the branch that is a rank's ``place``-th read the rank's own constants."""
        tables: dict[tuple[str, ...], str] = {}
        for ops, slot, row in branches.slots:
            if row not in tables:
                mine = [row[n * count + place] for n in range(self._ranks)]
                tables[row] = self._own(row[place], mine)
            self._graph.set_input(ops[place], slot, tables[row])

    def _own(self, stem: str, names: Sequence[str]) -> str:
        graph = self._graph
        constants = [graph.constants[name] for name in names]
        first = constants[0].type
        sizes = first.sizes or (1,)
        rows = TensorType(first.dtype, (sizes[0] * len(constants), *sizes[1:]))
        own = Constant(TensorType(first.dtype, sizes), source=Stacked((constants[0],)))
        table = Constant(rows, source=Stacked(tuple(constants), tuple(names)))
        name = self._found.take_rows(stem, RankRows(table, self._axes, len(constants)), own)
        if first.sizes:
            return name
        shape = graph.constant_of(f"{stem}_sizes", np.asarray([], np.int64))
        return graph.emit("Reshape", [name, shape], first, stem=f"{stem}_own")
