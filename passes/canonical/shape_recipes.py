"""One way to compute each size: from the shapes of the graph's inputs.

Shape arithmetic that is still needed after folding may start at any tensor. Where its result is
known on symbols, it is written anew in one form, so that equal results are one value: runs of
an input's dims by ``Shape(start, end)``, numbers by a constant, products and sums by Mul and
Add, all joined by one Concat. Only values that something else than shape arithmetic reads are
rewritten; the rest dies with the old chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, Expr, symbol
from gecompiler.ir.dims import Symbol as DimSymbol
from gecompiler.ir.infer.arrays import SymbolicArray
from gecompiler.ir.op import NO_ATTRS, Attr, Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_SHAPE_HAS_BOUNDS = 15
_MAX_TERMS = 8


def canonical_sizes(r: Rewriter, op: Op) -> Result | None:
    """The op's result computed from the graph's inputs, in the one form there is for it."""
    if r.opset < _SHAPE_HAS_BOUNDS or r.is_pinned(op) or not _is_frontier(r, op):
        return None
    known = r.facts.symbolic(op.outputs[0])
    if known is None or known.numbers is not None or len(known.shape) > 1:
        return None
    items = [item for item in known.items if item is not None]
    sources = _Sources.of(r)
    if len(items) < len(known.items) or not all(sources.reach(item) for item in items):
        return None
    recipe = _Recipe(r, sources, op)
    value = recipe.vector(items) if known.shape else recipe.scalar(items[0])
    return None if value == op.outputs[0] else value


def sizes_vector(r: Rewriter, op: Op, items: list[Dim]) -> str | None:
    """A rank-1 tensor of those sizes for ``op``'s use; None where the inputs do not give them."""
    sources = _Sources.of(r)
    if not all(sources.reach(item) for item in items):
        return None
    if r.opset < _SHAPE_HAS_BOUNDS and not all(isinstance(item, int) for item in items):
        return None
    return _Recipe(r, sources, op).vector(items)


def _is_frontier(r: Rewriter, op: Op) -> bool:
    """Whether something reads the op's sizes that is no arithmetic on sizes itself."""
    if len(op.outputs) != 1 or r.facts.dtype(op.outputs[0]) is not DType.I64:
        return False
    if r.graph.is_output(op.outputs[0]):
        return True
    return not all(_computes_sizes(r, user) for user in r.graph.users(op.outputs[0]))


def _computes_sizes(r: Rewriter, op: Op) -> bool:
    if len(op.outputs) != 1 or r.facts.dtype(op.outputs[0]) is not DType.I64:
        return False
    known = r.facts.symbolic(op.outputs[0])
    return known is not None and known.is_known and len(known.shape) <= 1


class _Sources:
    """Where sizes can be read: input and axis by dim, the first of each."""

    def __init__(self, places: Mapping[Dim, tuple[str, int]], r: Rewriter) -> None:
        self.places = places
        self._shapes = {value: r.facts.shape(value) or () for value, _ in places.values()}

    @staticmethod
    def of(r: Rewriter) -> _Sources:
        places: dict[Dim, tuple[str, int]] = {}
        for value in r.graph.inputs:
            for axis, dim in enumerate(r.facts.shape(value) or ()):
                if not isinstance(dim, int):
                    places.setdefault(dim, (value, axis))
        return _Sources(places, r)

    def reach(self, item: Dim) -> bool:
        """Whether the dim can be computed from the places by products and sums."""
        if isinstance(item, int) or item in self.places:
            return True
        atoms = [atom for monomial, _ in item.terms for atom, _ in monomial]
        return len(item.terms) <= _MAX_TERMS and all(
            isinstance(atom, DimSymbol) and symbol(atom.name) in self.places for atom in atoms
        )

    def run(self, items: list[Dim], at: int) -> tuple[str, int, int] | None:
        """The input and axes [start, end) whose dims are the longest run of items from ``at``."""
        place = self.places.get(items[at])
        if place is None:
            return None
        value, start = place
        shape, end = self._shapes[value], start
        while end < len(shape) and at + end - start < len(items):
            if shape[end] != items[at + end - start]:
                break
            end += 1
        return value, start, end


class _Recipe:
    """Builds sizes, using ops that are there already."""

    def __init__(self, r: Rewriter, sources: _Sources, op: Op) -> None:
        self._r = r
        self._sources = sources
        self._op = op

    def scalar(self, item: Dim) -> str:
        """A rank-0 tensor holding the size."""
        axes = self._r.ints((0,), "axes")
        return self._make("Squeeze", (self.vector([item]), axes), (), (item,))

    def vector(self, items: list[Dim]) -> str:
        """A rank-1 tensor holding the sizes."""
        pieces = list(self._pieces(items))
        if len(pieces) == 1:
            return pieces[0]
        return self._make("Concat", tuple(pieces), (len(items),), tuple(items), {"axis": 0})

    def _pieces(self, items: list[Dim]) -> Iterator[str]:
        at = 0
        while at < len(items):
            found = self._sources.run(items, at)
            if found is not None:
                value, start, end = found
                yield self._shape(value, start, end)
                at += end - start
            elif isinstance(items[at], int):
                end = at
                while end < len(items) and isinstance(items[end], int):
                    end += 1
                yield self._numbers([d for d in items[at:end] if isinstance(d, int)])
                at = end
            else:
                yield self._sum(items[at])
                at += 1

    def _shape(self, value: str, start: int, end: int) -> str:
        dims = self._r.facts.shape(value) or ()
        attrs: dict[str, Attr] = {} if (start, end) == (0, len(dims)) else {"start": start}
        if attrs and end < len(dims):
            attrs["end"] = end
        return self._make("Shape", (value,), (end - start,), dims[start:end], attrs)

    def _numbers(self, items: list[int]) -> str:
        array = np.array(items, dtype=np.int64)
        return self._r.constant(Constant.of(array), f"{self._op.name}_sizes")

    def _sum(self, item: Dim) -> str:
        """The polynomial, term by term in its normal order."""
        assert isinstance(item, Expr)
        total: tuple[str, Dim] | None = None
        for monomial, coefficient in item.terms:
            term: tuple[str, Dim] | None = None
            for atom, power in monomial:
                dim = symbol(str(atom))
                value, axis = self._sources.places[dim]
                for _ in range(power):
                    factor = (self._shape(value, axis, axis + 1), dim)
                    term = factor if term is None else self._combine("Mul", term, factor)
            if term is None or coefficient != 1:
                number: tuple[str, Dim] = (self._numbers([coefficient]), coefficient)
                term = number if term is None else self._combine("Mul", term, number)
            total = term if total is None else self._combine("Add", total, term)
        assert total is not None
        return total[0]

    def _combine(self, op_type: str, a: tuple[str, Dim], b: tuple[str, Dim]) -> tuple[str, Dim]:
        item = a[1] * b[1] if op_type == "Mul" else a[1] + b[1]
        return self._make(op_type, (a[0], b[0]), (1,), (item,)), item

    def _make(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        items: tuple[Dim, ...],
        attrs: Mapping[str, Attr] = NO_ATTRS,
    ) -> str:
        """The output of that op: one that is there, else a new one."""
        for user in self._r.graph.users(inputs[0]):
            if user.is_(op_type) and user.inputs == inputs and dict(user.attrs) == dict(attrs):
                return user.outputs[0]
        type_ = TensorType(DType.I64, shape)
        info = self._op.info
        value = self._r.emit(op_type, inputs, type_, attrs=attrs, info=info, stem=op_type.lower())
        self._r.facts.learn(value, SymbolicArray(shape, items))
        return value


RULES: RuleTable = {"*": (canonical_sizes,)}
