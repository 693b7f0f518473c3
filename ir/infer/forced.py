"""Sizes that a valid program forces: a symbol that an equality ties to a number or to others.

torch.export writes ``s70`` for a size that later code takes to be 1, and gives the mask a length
of its own that a matrix product makes the keys' length. Solving such equalities makes the rest
of the graph plain. Only equalities that hold in every run count, not those where 1 broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dim_division import exact_quotient
from gecompiler.ir.dim_expr import Monomial
from gecompiler.ir.dims import Dim, DimError, Expr, Symbol, collect, substitute, symbols
from gecompiler.ir.infer.facts import Assumption

MAX_TERMS = 32
"""Longer equalities are left alone: every symbol of each would be solved for."""


def forced_sizes(
    assumptions: Iterable[Assumption], order: Sequence[str]
) -> tuple[dict[str, Dim], list[Assumption]]:
    """What the equalities force of the symbols in ``order`` (those of inputs, first come first).

    Returns each forced symbol's size in terms of the others, and the equalities used.
    """
    found: dict[str, Dim] = {}
    used: list[Assumption] = []
    for assumption in assumptions:
        if assumption.broadcast:
            continue
        try:
            gap = substitute(assumption.left, found) - substitute(assumption.right, found)
            solution = solve(gap, order)
            if solution is None:
                continue
            name, size = solution
            found = {k: substitute(v, {name: size}) for k, v in found.items()}
        except DimError:
            continue
        found[name] = size
        used.append(assumption)
    return found, used


def solve(gap: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """The symbol, and its size, that makes ``gap`` 0; a number is preferred, then later symbols.

    Symbols are at least 1. None where no symbol of ``order`` is tied in a way that is understood.
    """
    if isinstance(gap, int) or len(gap.terms) > MAX_TERMS:
        return None
    names = symbols(gap)
    if not names <= set(order):
        return None
    best: tuple[str, Dim] | None = None
    for name in (n for n in reversed(order) if n in names):
        size = _root(gap, name)
        if isinstance(size, int):
            return name, size
        if size is not None and best is None:
            best = name, size
    return best


def _root(gap: Expr, name: str) -> Dim | None:
    """The only positive value of the symbol at which ``gap`` is 0, where gap is linear in it."""
    factors: list[tuple[Monomial, int]] = []
    rests: list[tuple[Monomial, int]] = []
    for monomial, coefficient in gap.terms:
        others = tuple((a, p) for a, p in monomial if not _is(a, name))
        power = sum(p for a, p in monomial if _is(a, name))
        if power > 1 or any(name in symbols(x) for a, _ in others for x in getattr(a, "args", ())):
            return None
        (factors if power else rests).append((others, coefficient))
    factor, rest = collect(factors), collect(rests)
    if not at_least(factor, 1, least=1) and not at_least(-factor, 1, least=1):
        return None
    size = exact_quotient(-rest, factor)
    return size if size is not None and at_least(size, 1, least=1) else None


def _is(atom: object, name: str) -> bool:
    return isinstance(atom, Symbol) and atom.name == name
