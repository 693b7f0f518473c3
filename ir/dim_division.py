"""Division of dims: exact where it can be, reduced to one normal form where it cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gecompiler.ir.dims import Call, Dim, Monomial, collect, from_atom, multiply, terms

_LONGEST = 16
"""Most terms in a divisor for which exact division is tried; real ones have two or three."""


def symbolic_floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``. Whole multiples of a number below leave the fraction, and it is reduced.

    So ``(h - 1)//2 + 1`` and ``(h + 1)//2`` have one form, as have ``(2*s + 1)//2`` and ``s``.
    """
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0:
        split = [(m, *_whole(m, c, b)) for m, c in terms(a)]
        whole = collect([(m, q) for m, q, _ in split])
        rest = collect([(m, r) for m, _, r in split])
        if rest != a:
            return whole + symbolic_floordiv(rest, b)
        if isinstance(rest, int):
            return rest // b
    reduced_a, reduced_b = _reduced(a, b)
    if reduced_b != b:
        return symbolic_floordiv(reduced_a, reduced_b)
    return from_atom(Call("floordiv", (a, b)))


def _reduced(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Both without the factors that all their terms have; they are positive, so nothing changes."""
    both = [*terms(a), *terms(b)]
    number = math.gcd(*(c for _, c in both))
    shared = dict(both[0][0]) if both else {}
    for monomial, _ in both[1:]:
        powers = dict(monomial)
        shared = {atom: min(p, powers[atom]) for atom, p in shared.items() if atom in powers}
    factor = (tuple(shared.items()), number or 1)
    above = [_term_quotient(term, factor) for term in terms(a)]
    below = [_term_quotient(term, factor) for term in terms(b)]
    return collect([t for t in above if t]), collect([t for t in below if t])


def _whole(monomial: Monomial, coefficient: int, divisor: int) -> tuple[int, int]:
    """Quotient and remainder of a term; a negative one stays, so that bounds stay provable."""
    if coefficient < 0 and monomial:
        return 0, coefficient
    return divmod(coefficient, divisor)


def symbolic_mod(a: Dim, b: Dim) -> Dim:
    """``a % b``, multiples of a number below left out."""
    if exact_quotient(a, b) is not None:
        return 0
    if isinstance(b, int) and b > 0:
        a = collect([(m, c % b) for m, c in terms(a)])
        if isinstance(a, int):
            return a % b
    return from_atom(Call("mod", (a, b)))


def _rank(monomial: Monomial) -> tuple[int, list[str]]:
    """The key of an order that multiplication keeps (graded lexicographic): greatest first."""
    factors = [atom.text for atom, power in monomial for _ in range(power)]
    return -len(factors), factors


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` where that is a polynomial with integer coefficients, else None."""
    divisor = sorted(terms(b), key=lambda term: _rank(term[0]))
    if not divisor or len(divisor) > _LONGEST:
        return None
    rest: dict[Monomial, int] = dict(terms(a))
    found: list[tuple[Monomial, int]] = []
    while rest:
        leading = min(rest, key=_rank)
        part = _term_quotient((leading, rest[leading]), divisor[0])
        if part is None:
            return None
        found.append(part)
        for monomial, coefficient in divisor:
            product = multiply(part[0], monomial)
            left = rest.get(product, 0) - part[1] * coefficient
            if left:
                rest[product] = left
            else:
                rest.pop(product, None)
    return collect(found)


def _term_quotient(a: tuple[Monomial, int], b: tuple[Monomial, int]) -> tuple[Monomial, int] | None:
    powers = dict(a[0])
    for atom, power in b[0]:
        powers[atom] = powers.get(atom, 0) - power
    if a[1] % b[1] or any(p < 0 for p in powers.values()):
        return None
    return tuple((k, p) for k, p in powers.items() if p), a[1] // b[1]


def cancel(numerator: Iterable[Dim], denominator: Iterable[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Both lists of factors without those that occur in both."""
    below = list(denominator)
    above: list[Dim] = []
    for factor in numerator:
        if factor in below:
            below.remove(factor)
        else:
            above.append(factor)
    return above, below
