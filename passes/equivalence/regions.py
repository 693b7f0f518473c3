"""Both sides of a change as graphs of their own, which read the same inputs.

Each side is followed back from its value to values that both graphs have. Those become inputs,
unless they hang together: a value computed from another one, or from little more than the
model's inputs (masks, tables of angles), is computed on both sides, since the pass may have
used what it knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.block_ops import ROTARY_EMBEDDING
from gecompiler.ir.constants import Constant
from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import TensorType, ValueType
from gecompiler.passes.effects import is_random
from gecompiler.passes.equivalence.difference import Change
from gecompiler.passes.equivalence.region import Region

_MAX_OPS = 400
"""Longest computation of masks or tables that is repeated."""

_MAX_TABLE = 1 << 16
"""Constants of more elements are weights: what is computed from them is no mask or table."""

_DATA_INPUTS = {FLASH_ATTENTION: 3, ROTARY_EMBEDDING: 1}
"""How many leading inputs of a fused op hold data, where the others are masks and tables."""

_NEAR = 40
"""How many values back from an input it is looked for whether it comes from another one."""

_HEAVY = frozenset(("Attention", "Conv", "Einsum", "Gemm", "MatMul", "Softmax"))
"""Ops behind which numbers may be anything."""


class NotCheckableError(Exception):
    """The region cannot be cut out; the message says why."""


@dataclass
class _Cut:
    """What was found going back from a value: ops in no order, and where it ended."""

    ops: dict[str, Op] = field(default_factory=dict)
    leaves: dict[str, None] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)


class Regions:
    """Cuts regions out of one pair of graphs, of which ``found`` are all changes.

    A value that stands for another is as good as a common one: it has a region of its own.
    """

    def __init__(self, before: Graph, after: Graph, found: Iterable[Change]) -> None:
        self._before = before
        self._after = after
        self._twins = {c.new: c.old for c in found if c.new != c.old}
        self._replaced = frozenset(self._twins.values())
        self._rank = {op.name: n for n, op in enumerate(before.topological())}
        self._pure = _pure_values(before)

    def of(self, change: Change) -> Region:
        """The region of a change; NotCheckableError when a type is not known."""
        old = self._back_before(change.old)
        new = self._back_after([change.new], through=change.new)
        count = _DATA_INPUTS.get(change.op.op_type, 99) if change.op.domain == GE_DOMAIN else 99
        data = self._leaves_of(change.op.inputs[:count])
        masks = self._leaves_of(change.op.inputs[count:])
        leaves = dict.fromkeys((*old.leaves, *new.leaves))
        start = self._prologue(leaves, data, _only_measured((old, new), leaves))
        absent: dict[str, TensorType] = {}
        one = self._graph(self._before, start, old, change.old, absent)
        two = self._graph(self._after, start, new, change.new, absent)
        known = frozenset(start.leaves)
        inputs = {**{v: _known_type(self._before, v) for v in start.leaves}, **absent}
        roles = frozenset(data) & known, frozenset(masks) & known
        return Region(one, two, inputs, *roles, tuple(old.ops))

    def _leaves_of(self, values: Iterable[str]) -> dict[str, None]:
        named = [v for v in values if v]
        return self._back_after(named).leaves

    def _back_before(self, value: str) -> _Cut:
        def ends(v: str) -> bool:
            return v != value and (v in self._replaced or self._after.has_value(v))

        return _back(self._before, [value], ends)

    def _back_after(self, values: Sequence[str], through: str = "") -> _Cut:
        def ends(v: str) -> bool:
            return v != through and (v in self._twins or self._before.has_value(v))

        cut = _back(self._after, values, ends)
        for value in [v for v in cut.leaves if v in self._twins and not self._before.has_value(v)]:
            del cut.leaves[value]
            old = self._twins[value]
            cut.leaves[old] = None
            copy = Op(f"{value} (was {old})", "Identity", (old,), (value,))
            cut.ops[copy.name] = copy
        return cut

    def _prologue(
        self, leaves: Iterable[str], data: Iterable[str], measured: Iterable[str]
    ) -> _Cut:
        """What both sides compute first, and its inputs (its `leaves`)."""
        wanted, given = dict.fromkeys(leaves), set(data)
        ends = set(wanted) - set(measured)
        opaque = {v for v in ends if v in given or v not in self._pure}
        dependent = _dependent(self._before, wanted, opaque, self._rank)
        start = _Cut()
        for leaf in wanted:
            pure = leaf not in given and leaf in self._pure
            if not pure and leaf not in dependent:
                start.leaves[leaf] = None
                continue
            found = self._computed(leaf, ends - {leaf}, dependent, everything=pure)
            if found is None:
                start.leaves[leaf] = None
                continue
            start.ops.update(found.ops)
            start.leaves.update(found.leaves)
            start.constants.update(found.constants)
        for op in start.ops.values():  # what is computed is no input
            for value in op.outputs:
                start.leaves.pop(value, None)
        return start

    def _computed(
        self, leaf: str, ends: set[str], dependent: set[str], *, everything: bool
    ) -> _Cut | None:
        """A leaf followed back to other leaves, or to the model's inputs; None if that is far."""
        cut, stack, seen = _Cut(), [leaf], {leaf}
        while stack:
            value = stack.pop()
            op = self._before.producer(value)
            constant = self._before.constant(value)
            if constant is not None:
                cut.constants[value] = constant
                continue
            follow = value in self._pure if everything else value in dependent
            if op is None or (value != leaf and (value in ends or not follow)):
                cut.leaves[value] = None
                continue
            cut.ops[op.name] = op
            if len(cut.ops) > _MAX_OPS:
                return None
            for read in self._before.reads(op):
                if read not in seen:
                    seen.add(read)
                    stack.append(read)
        return cut

    def _graph(
        self, graph: Graph, start: _Cut, rest: _Cut, result: str, absent: dict[str, TensorType]
    ) -> Graph:
        """The prologue and one side; weights without data are noted in ``absent`` as inputs."""
        made = Graph("region", graph.opsets)
        for value in start.leaves:
            made.add_input(value, _known_type(self._before, value))
        for name, constant in {**start.constants, **rest.constants}.items():
            if name in start.leaves:
                continue
            if constant.has_data:
                made.add_constant(name, constant)
            else:  # any numbers will do
                absent[name] = constant.type
                made.add_input(name, constant.type)
        listed = {**start.ops, **rest.ops}.values()
        made.add_ops((op, [self._type(graph, v) for v in op.outputs]) for op in listed)
        made.set_outputs([result])
        return made

    def _type(self, graph: Graph, value: str) -> ValueType:
        for known in (graph, self._before):
            if value and known.has_value(value):
                return known.type(value)
        return None


def _known_type(graph: Graph, value: str) -> TensorType:
    found = graph.tensor(value)
    if found is None or found.shape is None:
        raise NotCheckableError(f"the shape of {value!r} is not known")
    return found


def _back(graph: Graph, values: Sequence[str], ends: Callable[[str], bool]) -> _Cut:
    """Back from the values to where ``ends`` says that it is far enough."""
    cut, stack, seen = _Cut(), list(values), set(values)
    while stack:
        value = stack.pop()
        constant, op = graph.constant(value), graph.producer(value)
        if constant is not None:
            cut.constants[value] = constant
        elif op is None or ends(value):
            cut.leaves[value] = None
        else:
            cut.ops[op.name] = op
            for read in graph.reads(op):
                if read not in seen:
                    seen.add(read)
                    stack.append(read)
    return cut


def _only_measured(cuts: Iterable[_Cut], leaves: Iterable[str]) -> set[str]:
    """The leaves that are only asked for their shape."""
    found = set(leaves)
    for cut in cuts:
        for op in cut.ops.values():
            if not op.is_("Shape", "Size"):
                found.difference_update(op.inputs)
    return found


def _dependent(
    graph: Graph, leaves: Iterable[str], ends: set[str], rank: Mapping[str, int]
) -> set[str]:
    """Values at and closely before the leaves that are computed from one of ``ends``."""
    cone: dict[str, Op] = {}
    for leaf in leaves:
        queue, seen = [leaf], {leaf}
        for value in queue:
            op = graph.producer(value)
            if op is None or op.domain or op.op_type in _HEAVY or (value in ends and value != leaf):
                continue
            cone[op.name] = op
            if len(queue) > _NEAR:
                break
            new = [v for v in graph.reads(op) if v not in seen]
            seen.update(new)
            queue += new
    found: set[str] = set()
    for op in sorted(cone.values(), key=lambda o: rank[o.name]):
        if any(v in found or v in ends for v in graph.reads(op)):
            found.update(v for v in op.outputs if v)
    return found


def _pure_values(graph: Graph) -> set[str]:
    """Values computed from the model's inputs and small constants alone."""
    found = set(graph.inputs)
    for name, constant in graph.constants.items():
        if constant.has_data and constant.size <= _MAX_TABLE:
            found.add(name)
    for op in graph.topological():
        plain = not op.domain and not is_random(op) and not op.bodies
        if plain and all(v in found for v in op.inputs if v):
            found.update(v for v in op.outputs if v)
    return found
