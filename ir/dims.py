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
from functools import reduce

from gecompiler.ir.dim_expr import (
    Atom,
    Call,
    Dim,
    DimError,
    DimTooLargeError,
    Expr,
    Monomial,
    Symbol,
    as_atom,
    collect,
    dim_text,
    from_atom,
    multiply,
    symbol,
    symbols,
    terms,
)

__all__ = [
    "FUNCTIONS",
    "Atom",
    "Call",
    "Dim",
    "DimError",
    "DimTooLargeError",
    "Expr",
    "Monomial",
    "Symbol",
    "as_atom",
    "broadcast",
    "ceildiv",
    "collect",
    "dim_text",
    "floordiv",
    "from_atom",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "product",
    "substitute",
    "symbol",
    "symbols",
    "terms",
]


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
    flat = [part for dim in dims for part in _parts(function, dim)]
    numbers = [d for d in flat if isinstance(d, int)]
    parts: list[Dim] = sorted({d for d in flat if isinstance(d, Expr)}, key=dim_text)
    if numbers and not (function == "max" and pick(numbers) <= 0 and any(map(_plain, parts))):
        parts.append(pick(numbers))
    return parts[0] if len(parts) == 1 else from_atom(Call(function, tuple(parts)))


def _parts(function: str, dim: Dim) -> tuple[Dim, ...]:
    """The operands of ``dim`` if it is a call of that (associative) function, else itself."""
    atom = as_atom(dim)
    return atom.args if isinstance(atom, Call) and atom.function == function else (dim,)


def _plain(dim: Dim) -> bool:
    """Whether the dim is a sum of non-negative terms, hence not below 0."""
    return all(c > 0 and all(isinstance(a, Symbol) for a, _ in m) for m, c in terms(dim))


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
    """The size of two dims broadcast together; raises DimError when they cannot be.

    A number above 1 wins over a symbol (a valid program makes it 1 or equal), and ``x`` over
    ``min(x, 48)``, a table cut to it; two symbols not proven equal give the atom ``bcast(a, b)``.
    """
    if b in (a, 1):
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise DimError(f"sizes {a} and {b} do not broadcast")
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    if _is_cut_to(a, b):
        return b
    if _is_cut_to(b, a):
        return a
    parts = {part for dim in (a, b) for part in _parts("bcast", dim)}
    return from_atom(Call("bcast", tuple(sorted(parts, key=dim_text))))


def _is_cut_to(cut: Dim, size: Dim) -> bool:
    """Whether ``cut`` is ``min(size, n)`` with numbers n above 1: it is 1 only where size is."""
    rest = [part for part in _parts("min", cut) if part != size]
    return size in _parts("min", cut) and all(isinstance(n, int) and n > 1 for n in rest)


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
    """``dim`` with symbols replaced and everything recomputed; DimError when it cannot be."""
    if isinstance(dim, int):
        return dim
    parts: list[tuple[Monomial, int]] = []
    for mono, coef in dim.terms:
        if all(isinstance(a, Symbol) and a.name not in binding for a, _ in mono):
            parts.append((mono, coef))
            continue
        value: Dim = coef
        for atom, power in mono:
            new = _substituted(atom, binding)
            for _ in range(power):
                value = value * new
        parts.extend(terms(value))
    return collect(parts)


def _substituted(atom: Atom, binding: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return binding[atom.name] if atom.name in binding else from_atom(atom)
    args = [substitute(a, binding) for a in atom.args]
    try:
        return FUNCTIONS[atom.function](*args)
    except ZeroDivisionError:
        raise DimError(f"{atom} divides by zero") from None
