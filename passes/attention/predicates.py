"""Predicates over coordinates, in negation normal form.

A predicate is True, False, or built of

- `AtMost`: a polynomial in coordinates and sizes is at most 0 (``j - i <= 0`` is causality);
- `Lookup`: an element of some tensor is non-zero (or zero), at given coordinates;
- `All` and `Some`: conjunction and disjunction.

They are kept flat and free of duplicates, in order of construction, so that equal conditions,
however spelt, mostly become equal predicates; `negate` pushes negation down to the leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from gecompiler.ir.dims import Dim

Witness = tuple[str, tuple[Dim, ...], bool]
"""A boolean value of the graph, the coordinates of the element meant, and whether that element
is the truth of the positive lookup (else of the negative one)."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """``value <= 0``."""

    value: Dim


@dataclass(frozen=True, slots=True)
class Lookup:
    """Whether the element of ``value`` at ``coords`` is non-zero (``positive``) or zero.

    ``witness`` is a boolean value nearer the mask that holds the same truth, where the walk
    passed one of the smallest possible shape, so that it need not be computed again.
    """

    value: str
    coords: tuple[Dim, ...]
    positive: bool = True
    witness: Witness | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds."""

    parts: tuple[Predicate, ...]


Predicate = Union[bool, AtMost, Lookup, All, Some]


def conjunction(*parts: Predicate) -> Predicate:
    """Whether all parts hold."""
    found: dict[Predicate, None] = {}
    for part in parts:
        if part is False:
            return False
        if part is not True:
            found.update(dict.fromkeys(part.parts if isinstance(part, All) else (part,)))
    if any(negate(part) in found for part in found if isinstance(part, Lookup)):
        return False
    if len(found) == 1:
        return next(iter(found))
    return All(tuple(found)) if found else True


def disjunction(*parts: Predicate) -> Predicate:
    """Whether some part holds."""
    found: dict[Predicate, None] = {}
    for part in parts:
        if part is True:
            return True
        if part is not False:
            found.update(dict.fromkeys(part.parts if isinstance(part, Some) else (part,)))
    if any(negate(part) in found for part in found):
        return True
    if len(found) == 1:
        return next(iter(found))
    return Some(tuple(found)) if found else False


def negate(predicate: Predicate) -> Predicate:
    """The opposite."""
    match predicate:
        case bool():
            return not predicate
        case AtMost(value):
            return AtMost(1 - value)
        case Lookup(value, coords, positive, witness):
            return Lookup(value, coords, not positive, witness)
        case All(parts):
            return disjunction(*map(negate, parts))
        case Some(parts):
            return conjunction(*map(negate, parts))


def select(condition: Predicate, yes: Predicate, no: Predicate) -> Predicate:
    """``yes`` where the condition holds, else ``no``."""
    if yes is True or no is False:
        return disjunction(condition, no) if yes is True else conjunction(condition, yes)
    if yes is False or no is True:
        other = negate(condition)
        return conjunction(other, no) if yes is False else disjunction(other, yes)
    return disjunction(conjunction(condition, yes), conjunction(negate(condition), no))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts of a conjunction; none for True."""
    if predicate is True:
        return ()
    return predicate.parts if isinstance(predicate, All) else (predicate,)
