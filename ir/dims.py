"""Symbolic dimensions: integers, symbols, and what can be computed from them.

A `Dim` is an ``int`` or an `Expr`. An `Expr` is a polynomial with integer coefficients over
*atoms*; an atom is a symbol (``batch``) or an opaque function of other dims (``floordiv(s, 2)``,
``max(a, b)``, ``bcast(a, b)``). Polynomials are kept in one normal form, so two dims are equal
exactly when their forms are; nothing is ever equal by guess. An `Expr` that is constant
collapses to ``int`` at once.

Symbols stand for sizes and are taken to be non-negative; ``(a*b)//b`` is ``a`` because where
``b`` is 0 the program has no meaning anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Union

Monomial = tuple[tuple["Atom", int], ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size known by name only."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A function of dims that polynomials cannot express."""

    function: str
    args: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(str(a) for a in self.args)})"


Atom = Union[Symbol, Call]


class Expr:
    """A polynomial over atoms in normal form. Build it with `symbol` and operators."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

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
        return collect(
            [(multiply(m1, m2), c1 * c2) for m1, c1 in self.terms for m2, c2 in terms(other)]
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __str__(self) -> str:
        return " + ".join(_term_text(m, c) for m, c in self.terms).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({self})"


Dim = Union[int, Expr]


def symbol(name: str) -> Expr:
    """The dim named ``name``."""
    return Expr((((((Symbol(name), 1),)), 1),))


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
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


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
    # Higher degree first, then by name: one order, whatever the order of construction.
    kept.sort(key=lambda t: (-sum(p for _, p in t[0]), _term_text(t[0], 1)))
    return Expr(tuple(kept))


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [str(a) for a, power in monomial for _ in range(power)]
    if not factors:
        return str(coefficient)
    head = {1: "", -1: "-"}.get(coefficient, f"{coefficient}*")
    return head + "*".join(factors)


def from_atom(atom: Atom) -> Expr:
    """The dim that is just that atom."""
    return Expr(((((atom, 1),), 1),))


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``; exact division is carried out, anything else stays an atom."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    from gecompiler.ir.dim_division import symbolic_floordiv

    return symbolic_floordiv(a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """The smallest integer not below ``a / b``."""
    return floordiv(a + b - 1, b) if isinstance(b, int) and b > 0 else -floordiv(-a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """``a % b`` with the sign of ``b``, as ONNX's Mod (fmod=0) and Python have it."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    from gecompiler.ir.dim_division import symbolic_mod

    return symbolic_mod(a, b)


def _extremum(function: str, pick: Callable[[Iterable[int]], int], dims: tuple[Dim, ...]) -> Dim:
    numbers = [d for d in dims if isinstance(d, int)]
    parts: list[Dim] = sorted({d for d in dims if isinstance(d, Expr)}, key=str)
    if numbers and not (function == "max" and pick(numbers) <= 0 and parts and _plain(parts)):
        parts.append(pick(numbers))
    return parts[0] if len(parts) == 1 else from_atom(Call(function, tuple(parts)))


def _plain(parts: Iterable[Dim]) -> bool:
    """Whether every part is a sum of non-negative terms, hence not below 0."""
    return all(
        c > 0 and all(isinstance(a, Symbol) for a, _ in m) for p in parts for m, c in terms(p)
    )


def maximum(*dims: Dim) -> Dim:
    """The largest of the dims."""
    if all(isinstance(d, int) for d in dims):
        return max(d for d in dims if isinstance(d, int))
    return _extremum("max", max, dims)


def minimum(*dims: Dim) -> Dim:
    """The smallest of the dims."""
    if all(isinstance(d, int) for d in dims):
        return min(d for d in dims if isinstance(d, int))
    return _extremum("min", min, dims)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size of two dims broadcast together; raises ValueError when they cannot be.

    A number above 1 wins over a symbol (a valid program makes it 1 or equal); two symbols not
    proven equal give the atom ``bcast(a, b)``.
    """
    if b in (a, 1):
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"sizes {a} and {b} do not broadcast")
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    parts: list[Dim] = []
    for dim in (a, b):
        atom = as_atom(dim)
        known = atom.args if isinstance(atom, Call) and atom.function == "bcast" else (dim,)
        parts += [d for d in known if d not in parts]
    return from_atom(Call("bcast", tuple(sorted(parts, key=str)))) if len(parts) > 1 else parts[0]


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


def product(dims: Iterable[Dim]) -> Dim:
    """The product of the dims (1 for none)."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv,
    "ceildiv": ceildiv,
    "mod": mod,
    "max": maximum,
    "min": minimum,
    "bcast": lambda *dims: reduce(broadcast, dims),
}


def substitute(dim: Dim, binding: Mapping[str, Dim]) -> Dim:
    """``dim`` with symbols replaced and everything recomputed."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for mono, coef in dim.terms:
        value: Dim = coef
        for atom, power in mono:
            if isinstance(atom, Symbol):
                new: Dim = binding.get(atom.name, from_atom(atom))
            else:
                new = FUNCTIONS[atom.function](*(substitute(a, binding) for a in atom.args))
            for _ in range(power):
                value = value * new
        total = total + value
    return total
