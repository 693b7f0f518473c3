"""The expressions that symbolic dims are: symbols, calls, polynomials in normal form.

`dims` is the public face. Everything here is immutable, and bounded: a model file may spell
arithmetic whose result grows exponentially, so an expression beyond the limits below is
refused (`DimTooLargeError`) before it is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Union

from gecompiler.ir.errors import GraphError

MAX_ATOMS = 4096
"""Most symbols and calls in one expression, each counted as often as it occurs in the text."""
MAX_COEFFICIENT = 2**128
"""Largest factor: sizes beyond 2**63 are of no use, and their products must still compare."""
MAX_NESTING = 64
"""Most calls within calls."""
PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
"""Names that stand in text as they are; others are quoted."""

Monomial = tuple[tuple["Atom", int], ...]


class DimError(GraphError, ValueError):
    """Sizes that contradict one another, or whose computation has no meaning."""


class DimTooLargeError(DimError):
    """A size whose expression grew beyond any use."""

    def __init__(self) -> None:
        super().__init__(
            "the expression of a size grew beyond what any real model needs",
            hint="give the model's inputs fixed sizes (--input-shape)",
        )


def quoted(name: str) -> str:
    """The name as it stands in text: plain where it can be, else in JSON's double quotes."""
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size known by name only. ``text`` is the name, quoted where it is no plain one."""

    name: str
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", quoted(self.name))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A function of dims that polynomials cannot express."""

    function: str
    args: tuple[Dim, ...]
    text: str = field(init=False, repr=False, compare=False)
    atoms: int = field(init=False, repr=False, compare=False)
    nesting: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = [a for a in self.args if isinstance(a, Expr)]
        atoms = len(self.args) + sum(a.atoms for a in inner)
        nesting = 1 + max((a.nesting for a in inner), default=0)
        if atoms > MAX_ATOMS or nesting > MAX_NESTING:
            raise DimTooLargeError
        text = f"{self.function}({', '.join(dim_text(a) for a in self.args)})"
        for name, value in (("atoms", atoms), ("nesting", nesting), ("text", text)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self.text


Atom = Union[Symbol, Call]


class Expr:
    """A polynomial over atoms in normal form. Build it with `symbol` and operators.

    ``text`` is its one spelling, which `dim_parse` reads back; ``str`` is the same but for a
    lone symbol, which is its bare name.
    """

    __slots__ = ("_hash", "atoms", "nesting", "terms", "text")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        if any(abs(coefficient) > MAX_COEFFICIENT for _, coefficient in terms):
            raise DimTooLargeError
        self.terms = terms
        self._hash = hash(terms)
        self.atoms, self.nesting = len(terms), 0
        for monomial, _ in terms:
            for atom, power in monomial:
                self.atoms += power
                if isinstance(atom, Call):
                    self.atoms += power * atom.atoms
                    self.nesting = max(self.nesting, atom.nesting)
        if self.atoms > MAX_ATOMS:
            raise DimTooLargeError
        first, *others = (_term_text(m, c) for m, c in terms)
        signed = (f" - {t[1:]}" if t[0] == "-" else f" + {t}" for t in others)
        self.text = first + "".join(signed)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        return collect([*self.terms, *terms(other)])

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return collect([(m, -c) for m, c in self.terms])

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, Expr) and len(self.terms) * len(other.terms) > MAX_ATOMS:
            raise DimTooLargeError
        return collect(
            [(multiply(m1, m2), c1 * c2) for m1, c1 in self.terms for m2, c2 in terms(other)]
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        from gecompiler.ir.dims import floordiv

        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        from gecompiler.ir.dims import floordiv

        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        from gecompiler.ir.dims import mod

        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        from gecompiler.ir.dims import mod

        return mod(other, self)

    def __str__(self) -> str:
        atom = as_atom(self)
        if not isinstance(atom, Symbol) or atom.name == atom.text:
            return self.text
        from gecompiler.ir.dim_parse import parse_dim

        return atom.name if parse_dim(atom.name) == self else self.text

    def __repr__(self) -> str:
        return f"Dim({self})"


Dim = Union[int, Expr]


def dim_text(dim: Dim) -> str:
    """The one spelling of a dim; `dim_parse.parse_dim` reads it back."""
    return dim.text if isinstance(dim, Expr) else str(dim)


@lru_cache(maxsize=8192)
def symbol(name: str) -> Expr:
    """The dim named ``name``."""
    return from_atom(Symbol(name))


def from_atom(atom: Atom) -> Expr:
    """The dim that is just that atom."""
    return Expr(((((atom, 1),), 1),))


def terms(dim: Dim) -> Iterable[tuple[Monomial, int]]:
    """The terms of the polynomial: monomials with their coefficients, none of them 0."""
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def multiply(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials in normal form."""
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].text))


def collect(parts: Iterable[tuple[Monomial, int]]) -> Dim:
    """The sum of terms in normal form."""
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in parts:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in sums.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > 1:  # higher degree first, then by text: one order, however it was built
        kept.sort(key=lambda t: _place(t[0]))
    return Expr(tuple(kept))


@lru_cache(maxsize=8192)
def _place(monomial: Monomial) -> tuple[int, str]:
    """What terms are sorted by: less the degree, then the text."""
    degree = sum(power for _, power in monomial)
    if degree > MAX_ATOMS:
        raise DimTooLargeError
    return -degree, "*".join(atom.text for atom, power in monomial for _ in range(power))


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = _place(monomial)[1]
    if not monomial:
        return str(coefficient)
    return {1: "", -1: "-"}.get(coefficient, f"{coefficient}*") + factors


def as_atom(dim: Dim) -> Atom | None:
    """The single atom that ``dim`` is, or None."""
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        (mono, coef) = dim.terms[0]
        if coef == 1 and len(mono) == 1 and mono[0][1] == 1:
            return mono[0][0]
    return None


def symbols(dim: Dim) -> set[str]:
    """The names of all symbols in ``dim``."""
    found: set[str] = set()
    for mono, _ in terms(dim):
        for atom, _power in mono:
            if isinstance(atom, Symbol):
                found.add(atom.name)
            else:
                found |= {name for arg in atom.args for name in symbols(arg)}
    return found
