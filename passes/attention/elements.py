"""What one element of a tensor is, as a function of its coordinates.

`Elements.at` interprets the graph backwards from a value: ``at(mask, (b, 0, i, j))`` may turn out
to be ``0 if j <= i and attention_mask[b, j] else -inf``. It works on symbolic sizes and on
constants alike: a stored triangle of booleans becomes ``j <= i`` too. What cannot be interpreted
is an element of the value it was found in (`Opaque`, or a `Lookup` when boolean), so the answer
is always exact. Rules per op are in `element_rules`.

Results are kept per value and coordinates; masks shared by all layers are interpreted once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Union

import numpy as np

from gecompiler.ir.dims import Dim, Expr
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention.coordinates import Coordinates, Coords
from gecompiler.passes.attention.predicates import All, AtMost, Lookup, Predicate, Some

MAX_DEPTH = 80
"""Longest chain of ops that is followed; mask builders of real exports stay below 30."""


MAX_SIZE = 64
"""Most parts of the formula of one element."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, maybe depending on coordinates and sizes, whatever the element type."""

    value: Dim


@dataclass(frozen=True, slots=True)
class Real:
    """A number that is not whole (or not finite)."""

    value: float


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two elements."""

    condition: Predicate
    yes: Element
    no: Element


@dataclass(frozen=True, slots=True)
class Magnitude:
    """The absolute value of a whole number."""

    value: Dim


@dataclass(frozen=True, slots=True)
class Opaque:
    """The element of that value at those coordinates, of which nothing more is known."""

    value: str
    coords: Coords


Element = Union[Number, Real, Truth, Choice, Magnitude, Opaque]


def real(value: float) -> Element:
    """A floating-point number as an element: a `Number` where it is whole."""
    if np.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return Number(int(value))
    return Real(float(value))


def is_small(element: Element) -> bool:
    """Whether a formula is of a size that masks have; a model could make one of any size."""
    return _size(element) <= MAX_SIZE


def _size(element: Element | Predicate) -> int:
    """How many parts there are; more than `MAX_SIZE` for numbers that no int64 holds."""
    match element:
        case Number(value) | Magnitude(value) | AtMost(value):
            terms = value.terms if isinstance(value, Expr) else (((), int(value)),)
            fits = all(abs(c) < 2**63 and sum(p for _, p in m) < MAX_SIZE for m, c in terms)
            return 1 + len(terms) // 8 if fits else MAX_SIZE + 1
        case Truth(predicate):
            return _size(predicate)
        case Choice(condition, yes, no):
            return 1 + _size(condition) + _size(yes) + _size(no)
        case All(parts) | Some(parts):
            return 1 + sum(map(_size, parts))
    return 1


def number_of(element: Element | None) -> float | None:
    """The number that an element is, whatever the coordinates; None when it is none."""
    if isinstance(element, Real):
        return element.value
    if isinstance(element, Number) and isinstance(element.value, int):
        return float(element.value)
    return None


class Elements:
    """Interprets elements of one graph's values; see the module's docstring.

    ``agree(a, b)``: whether two sizes that meet in a broadcast are the same one in every valid
    run (default: proven equal). Where they are not, one may be 1, and nothing is concluded.
    """

    def __init__(self, graph: Graph, agree: Callable[[Dim, Dim], bool] | None = None) -> None:
        self.graph = graph
        self.agree = agree or operator.eq
        self.coordinates = Coordinates()
        self._known: dict[tuple[str, Coords], Element] = {}
        self._depth = 0

    # ---------------------------------------------------------------- questions

    def at(self, value: str, coords: Coords) -> Element:
        """The element of ``value`` at ``coords`` (one per axis)."""
        key = (value, coords)
        known = self._known.get(key)
        if known is None:
            self._depth += 1
            found = self._interpret(value, coords) if self._depth <= MAX_DEPTH else None
            self._depth -= 1
            if found is not None and not (is_small(found) and self._is_exact(value, found)):
                found = None
            known = self._witnessed(
                value, coords, self.opaque(value, coords) if found is None else found
            )
            self._known[key] = known
        return known

    def broadcast(self, value: str, coords: Coords) -> Element | None:
        """The element of ``value`` that broadcasting to a tensor puts at its ``coords``."""
        shape = self.shape(value)
        if shape is None or len(shape) > len(coords):
            return None
        aligned = coords[len(coords) - len(shape) :]
        found: list[Dim] = []
        for dim, coord in zip(shape, aligned, strict=True):
            size = self.coordinates.size(coord)
            found.append(0 if dim == 1 else coord)
            if dim != 1 and size is not None and not self._alike(dim, size):
                return self.opaque(value, aligned)
        return self.at(value, tuple(found))

    def operand(self, op: Op, index: int, coords: Coords) -> Element | None:
        """An operand's element in an elementwise op, at coordinates of the op's output."""
        name, shape = op.input(index), self.shape(op.input(index))
        out = self.shape(op.outputs[0])
        if not name or shape is None or out is None or len(out) != len(coords):
            return None
        lead = len(coords) - len(shape)
        for dim, grown in zip(shape, out[lead:], strict=True):
            if not (isinstance(dim, int) or dim == grown or self.agree(dim, grown)):
                return None
        aligned = zip(shape, coords[lead:], strict=True)
        return self.at(name, tuple(0 if d == 1 else c for d, c in aligned))

    def uniform(self, value: str) -> float | None:
        """The number that every element of ``value`` is, or None."""
        shape = self.shape(value)
        if shape is None:
            return None
        coords = tuple(self.coordinates.variable(f"u{n}", d) for n, d in enumerate(shape))
        return number_of(self.at(value, coords))

    def dims(self, value: str) -> tuple[Dim, ...] | None:
        """The elements of a small whole-number tensor (0-D or 1-D), or None."""
        shape = self.shape(value)
        if shape is None or len(shape) > 1 or any(not isinstance(d, int) or d > 64 for d in shape):
            return None
        indices: list[Coords] = [(n,) for n in range(int(str(shape[0])))] if shape else [()]
        found = [self.at(value, c) for c in indices]
        numbers = [e.value for e in found if isinstance(e, Number)]
        return tuple(numbers) if len(numbers) == len(found) else None

    def ints(self, value: str) -> tuple[int, ...] | None:
        """The same when all are numbers."""
        found = self.dims(value)
        if found is None or not all(isinstance(d, int) for d in found):
            return None
        return tuple(d for d in found if isinstance(d, int))

    def shape(self, value: str) -> Shape | None:
        """The shape of a value."""
        return self.graph.shape(value)

    def dtype(self, value: str) -> DType | None:
        """The element type of a value."""
        known = self.graph.tensor(value)
        return None if known is None else known.dtype

    def _alike(self, dim: Dim, size: Dim) -> bool:
        """Whether an axis of size ``dim`` is run through by a coordinate of that size."""
        return dim == size or (not isinstance(dim, int) and self.agree(dim, size))

    # ---------------------------------------------------------------- interpretation

    def opaque(self, value: str, coords: Coords) -> Element:
        """An element of which nothing more is known."""
        if self.dtype(value) is DType.BOOL:
            return Truth(Lookup(value, coords))
        return Opaque(value, coords)

    def _interpret(self, value: str, coords: Coords) -> Element | None:
        from gecompiler.passes.attention.element_constants import constant_element
        from gecompiler.passes.attention.element_rules import RULES

        constant = self.graph.constant(value)
        if constant is not None:
            return constant_element(self, constant, coords)
        op = self.graph.producer(value)
        shape = self.shape(value)
        if op is None or op.domain or shape is None or len(shape) != len(coords):
            return None
        rule = RULES.get(op.op_type)
        return None if rule is None else rule(self, op, value, coords)

    def _is_exact(self, value: str, found: Element) -> bool:
        from gecompiler.passes.attention.number_ranges import is_exact

        return is_exact(self.coordinates, self.dtype(value), found)

    def _witnessed(self, value: str, coords: Coords, found: Element) -> Element:
        """Remembers the value as holding a lookup's truth, if it is no larger than it must be."""
        if not isinstance(found, Truth) or not isinstance(found.predicate, Lookup):
            return found
        lookup = found.predicate
        shape = self.shape(value) or ()
        needed = self.coordinates.within(lookup.coords)
        if self.dtype(value) is not DType.BOOL or len(shape) != len(coords):
            return found
        used: list[str] = []
        for dim, coord in zip(shape, coords, strict=True):
            names = list(self.coordinates.within([coord]))
            size = self.coordinates.size(coord)
            whole = coord == 0 if dim == 1 else size is not None and self._alike(dim, size)
            if not whole or any(n not in needed or n in used for n in names):
                return found
            used += names
        witness = (value, coords, lookup.positive)
        return Truth(replace(lookup, witness=witness))
