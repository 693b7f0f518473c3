"""Arithmetic on coordinates: indices that run from 0 to below a size.

A coordinate is a dim symbol of a reserved name with a known size, so an index computed from
coordinates is a polynomial like any dim. Being in range is what lets divisions be carried out:
``(b*S + j) // S`` is ``b`` because ``0 <= j < S``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dims import Dim, Expr, Symbol, floordiv, mod, substitute, symbol, symbols
from gecompiler.ir.types import Shape
from gecompiler.passes.attention import layout

Coords = tuple[Dim, ...]


class Coordinates:
    """The coordinates in use and their sizes; names tell role and size, hence are stable."""

    def __init__(self) -> None:
        self._sizes: dict[str, Dim] = {}

    def variable(self, role: str, size: Dim) -> Dim:
        """The coordinate of that role and size; the only one of size 1 is 0."""
        if size == 1:
            return 0
        name = f"#{role}:{size}"
        self._sizes[name] = size
        return symbol(name)

    def size(self, variable: Dim) -> Dim | None:
        """How far a coordinate runs, if ``variable`` is one."""
        names = symbols(variable)
        (name,) = names if len(names) == 1 else ("",)
        return self._sizes.get(name) if name and variable == symbol(name) else None

    def within(self, dims: Iterable[Dim]) -> dict[str, None]:
        """The names of the coordinates that occur in the dims, in a stable order."""
        names = {n for dim in dims for n in symbols(dim) if n in self._sizes}
        return dict.fromkeys(sorted(names))

    def split(self, dim: Dim) -> tuple[dict[str, Dim], Dim] | None:
        """``dim`` as sum of coordinate times coefficient, and the rest; None when not affine."""
        coefficients: dict[str, Dim] = {}
        rest: Dim = 0
        for monomial, number in dim.terms if isinstance(dim, Expr) else (((), int(dim)),):
            factor: Dim = number
            found = ""
            for atom, power in monomial:
                known = isinstance(atom, Symbol) and atom.name in self._sizes
                if not known:
                    if self.within([Expr(((((atom, 1),), 1),))]):
                        return None
                    for _ in range(power):
                        factor = factor * Expr(((((atom, 1),), 1),))
                elif found or power > 1:
                    return None
                else:
                    found = str(atom)
            if found:
                coefficients[found] = coefficients.get(found, 0) + factor
            else:
                rest = rest + factor
        return coefficients, rest

    def most(self, dim: Dim) -> Dim | None:
        """An upper bound free of coordinates, reached for some of them; None: not known."""
        parts = self.split(dim)
        if parts is None:
            return None
        bound: dict[str, Dim] = {}
        for name, coefficient in parts[0].items():
            if at_least(coefficient, 0):
                bound[name] = self._sizes[name] - 1
            elif at_least(-coefficient, 0):
                bound[name] = 0
            else:
                return None
        return substitute(dim, bound)

    def never_above(self, dim: Dim, bound: int) -> bool:
        """Whether ``dim <= bound`` is proven for all coordinates."""
        most = self.most(dim)
        return most is not None and at_least(bound - most, 0)

    def always_above(self, dim: Dim, bound: int) -> bool:
        """Whether ``dim > bound`` is proven for all coordinates."""
        return self.never_above(-dim, -bound - 1)

    def divide(self, dim: Dim, divisor: Dim) -> tuple[Dim, Dim]:
        """Quotient and remainder of an index by a size."""
        whole: Dim = 0
        rest: Dim = 0
        for monomial, number in dim.terms if isinstance(dim, Expr) else (((), int(dim)),):
            term: Dim = Expr(((monomial, number),)) if monomial else number
            if divisor != 0 and mod(term, divisor) == 0:
                whole = whole + floordiv(term, divisor)
            else:
                rest = rest + term
        if self.never_above(-rest, 0) and self.never_above(rest - divisor + 1, 0):
            return whole, rest
        return floordiv(dim, divisor), mod(dim, divisor)

    def reshape(self, shape: Shape, coords: Coords, before: Shape) -> Coords | None:
        """The coordinates, before a reshape to ``shape``, of the element at ``coords`` after it."""
        out = layout.fresh(shape)
        given = layout.regroup(out, before)
        if given is None:
            return None
        index: dict[int, Dim] = {}
        for axis, coord in zip(out, coords, strict=True):
            for factor in axis:
                self._spread(factor, coord, index)
        return tuple(
            sum((index[id(f)] * stride for f, stride in layout.positions(layout.flat(axis))), 0)
            for axis in given
        )

    def _spread(self, factor: layout.Factor, coord: Dim, index: dict[int, Dim]) -> None:
        """Gives every part of a factor its share of the coordinate."""
        if not factor.parts:
            index[id(factor)] = coord
            return
        major, minor = factor.parts
        quotient, remainder = self.divide(coord, layout.size((minor,)))
        self._spread(major, quotient, index)
        self._spread(minor, remainder, index)
