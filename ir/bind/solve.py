"""Finding numbers for symbols from equations between sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gecompiler.ir.dims import Dim, DimError, Expr, Symbol, substitute, symbols
from gecompiler.ir.infer.facts import Assumption


class Contradiction(Exception):  # noqa: N818  (an outcome of solving, told to users by others)
    """Two demands on sizes that cannot both hold; ``demands`` are those at odds, latest last."""

    def __init__(self, reason: str, demands: Iterable[str]) -> None:
        self.reason = reason
        self.demands = tuple(dict.fromkeys(demands))
        super().__init__(reason)


@dataclass(frozen=True)
class Equation:
    """``left`` equals ``right`` (or, with ``broadcast``, one of them is 1), and who says so."""

    left: Dim
    right: Dim
    source: str
    broadcast: bool = False

    @staticmethod
    def of(assumption: Assumption) -> Equation:
        """What inference assumed, as an equation."""
        source = f"node {assumption.op!r}"
        return Equation(assumption.left, assumption.right, source, assumption.broadcast)

    def symbols(self) -> set[str]:
        """The symbols on both sides."""
        return symbols(self.left) | symbols(self.right)


class Solver:
    """Numbers for symbols, positive all, and the equations that they keep.

    Equations with one unknown symbol are solved as soon as that is so; those that hold between
    numbers are checked. Any order of equations gives the same numbers.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.source: dict[str, str] = {}
        """Who determined each symbol."""
        self._waiting: dict[str, list[Equation]] = {}

    def add(self, equation: Equation) -> None:
        """Takes an equation; Contradiction when it cannot hold."""
        pending = [equation]
        while pending:
            current = pending.pop()
            bound = self._consider(current)
            if bound is None:
                for name in sorted(current.symbols() - self.sizes.keys()):
                    waiting = self._waiting.setdefault(name, [])
                    if not any(other is current for other in waiting):
                        waiting.append(current)
            elif bound:
                pending.extend(self._waiting.pop(bound, ()))

    def fix(self, name: str, size: int, source: str) -> None:
        """Gives a symbol a number."""
        from gecompiler.ir.dims import symbol

        self.add(Equation(symbol(name), size, source))

    def waiting(self, name: str) -> list[Equation]:
        """The open equations that a symbol occurs in."""
        return self._waiting.get(name, [])

    def copy(self) -> Solver:
        """An independent solver in the same state."""
        twin = Solver()
        twin.sizes, twin.source = dict(self.sizes), dict(self.source)
        twin._waiting = {name: list(found) for name, found in self._waiting.items()}
        return twin

    def _consider(self, equation: Equation) -> str | None:
        """The symbol that the equation determined, "" when it is settled, None when open."""
        try:
            left, right = (substitute(d, self.sizes) for d in (equation.left, equation.right))
            gap = left - right
        except DimError as error:
            raise Contradiction(error.message, self._demands(equation)) from None
        if isinstance(gap, int):
            self._check(equation, gap, left, right)
            return ""
        if equation.broadcast:
            return "" if 1 in (left, right) else None
        unknown = symbols(gap)
        if len(unknown) > 1:
            return None
        (name,) = unknown
        solution = _root(gap)
        if solution is None:
            return None
        if solution < 1:
            told = f"{equation.left} = {equation.right} makes {name} {solution}"
            raise Contradiction(f"{told}; sizes are at least 1", self._demands(equation))
        self.sizes[name] = solution
        self.source[name] = equation.source
        return name

    def _check(self, equation: Equation, gap: int, left: Dim, right: Dim) -> None:
        if gap == 0 or (equation.broadcast and 1 in (left, right)):
            return
        told = f"{_shown(equation.left, left)} and {_shown(equation.right, right)} must agree"
        raise Contradiction(told, self._demands(equation))

    def _demands(self, equation: Equation) -> Iterator[str]:
        for name in sorted(equation.symbols()):
            if name in self.source:
                yield self.source[name]
        yield equation.source


def _shown(dim: Dim, number: Dim) -> str:
    return f"{dim} = {number}" if dim != number else str(dim)


def _root(gap: Expr) -> int | None:
    """Where a dim of one symbol is 0, if it is linear in it with an integer root.

    None when it is not linear. A root that is no integer is told as 0, which is no size either.
    """
    slope = offset = 0
    for monomial, coefficient in gap.terms:
        if not monomial:
            offset = coefficient
        elif len(monomial) == 1 and isinstance(monomial[0][0], Symbol) and monomial[0][1] == 1:
            slope = coefficient
        else:
            return None
    return 0 if offset % slope else -offset // slope
