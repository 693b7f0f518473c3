"""What can be proven of a dim's range.

Interval arithmetic over the normal form: sound, not complete. "Not proven" is the answer
wherever the truth needs more than that. Symbols are at least ``least``: 0, or 1 where the
question is about inputs that are not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gecompiler.ir.dims import Atom, Call, Dim, Expr, Symbol, as_atom, maximum, minimum

Interval = tuple["int | None", "int | None"]
"""Least and greatest value, each None where it is not bounded."""

_WIDEST = 8
"""Calls of more operands than this are not looked into when two dims are compared."""


def interval(dim: Dim, least: int = 0) -> Interval:
    """Bounds that hold for all symbols of at least ``least``."""
    return (dim, dim) if isinstance(dim, int) else _of_polynomial(dim, least)


@lru_cache(maxsize=8192)
def _of_polynomial(dim: Expr, least: int) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in dim.terms:
        part: Interval = (coefficient, coefficient)
        for atom, power in monomial:
            for _ in range(power):
                part = _times(part, _of_atom(atom, least))
        low = None if low is None or part[0] is None else low + part[0]
        high = None if high is None or part[1] is None else high + part[1]
    return low, high


def _times(a: Interval, b: Interval) -> Interval:
    """The product; exact unless both may be negative and one is unbounded."""
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    if (0, 0) in (a, b):
        return 0, 0
    if a[1] is not None and a[1] <= 0:
        return _negated(_times(_negated(a), b))
    if b[1] is not None and b[1] <= 0:
        return _negated(_times(a, _negated(b)))
    corners = [x * y for x in a if x is not None for y in b if y is not None]
    return (min(corners), max(corners)) if len(corners) == 4 else (None, None)


def _negated(a: Interval) -> Interval:
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def _of_atom(atom: Atom, least: int) -> Interval:
    return (least, None) if isinstance(atom, Symbol) else _of_call(atom, least)


def _of_call(call: Call, least: int) -> Interval:
    parts = [interval(a, least) for a in call.args]
    lows = [p[0] for p in parts if p[0] is not None]
    highs = [p[1] for p in parts if p[1] is not None]
    if call.function == "bcast":
        low = min(lows) if len(lows) == len(parts) else 0
        return max(low, 0), max(highs) if len(highs) == len(parts) else None
    if call.function == "max":
        return max(lows, default=None), max(highs) if len(highs) == len(parts) else None
    if call.function == "min":
        return min(lows) if len(lows) == len(parts) else None, min(highs, default=None)
    (low_a, high_a), (low_b, high_b) = parts
    if low_b is None or low_b < 0:
        return None, None
    if call.function == "mod":
        return 0, None if high_b is None else max(high_b - 1, 0)
    # floordiv: a divisor of 0 has no meaning, so it is at least 1.
    divisor = max(low_b, 1)
    floor = None if low_a is None else min(low_a, 0)
    if floor == 0 and low_a is not None and high_b is not None and high_b > 0:
        floor = low_a // high_b
    ceiling = None if high_a is None else high_a // divisor if high_a >= 0 else -1
    return floor, ceiling


def at_least(dim: Dim, bound: int, least: int = 0) -> bool:
    """Whether ``dim >= bound`` is proven."""
    low = interval(dim, least)[0]
    return low is not None and low >= bound


def proven_le(a: Dim, b: Dim, least: int = 0) -> bool:
    """Whether ``a <= b`` is proven."""
    return _le(a, b, least, 4)


def _le(a: Dim, b: Dim, least: int, depth: int) -> bool:
    if a == b or at_least(b - a, 0, least):
        return True
    if not depth:
        return False
    small, large = _operands(a), _operands(b)
    if small is not None:
        some = any if small.function == "min" else all
        if some(_le(x, b, least, depth - 1) for x in small.args):
            return True
    if large is None:
        return False
    some = any if large.function == "max" else all
    return some(_le(a, x, least, depth - 1) for x in large.args)


def _operands(dim: Dim) -> Call | None:
    """The min or max that a dim is."""
    atom = as_atom(dim)
    if isinstance(atom, Call) and atom.function in ("min", "max") and len(atom.args) <= _WIDEST:
        return atom
    return None


def smallest(*dims: Dim, least: int = 0) -> Dim:
    """`dims.minimum`, without the dims that are proven not to matter."""
    kept = _pruned(dims, lambda a, b: proven_le(a, b, least))
    return kept[0] if len(kept) == 1 else minimum(*kept)


def largest(*dims: Dim, least: int = 0) -> Dim:
    """`dims.maximum`, without the dims that are proven not to matter."""
    kept = _pruned(dims, lambda a, b: proven_le(b, a, least))
    return kept[0] if len(kept) == 1 else maximum(*kept)


def _pruned(dims: tuple[Dim, ...], wins: Callable[[Dim, Dim], bool]) -> list[Dim]:
    kept: list[Dim] = []
    for dim in dims:
        if any(wins(k, dim) for k in kept):
            continue
        kept = [k for k in kept if not wins(dim, k)]
        kept.append(dim)
    return kept


def proven_order(a: Dim, b: Dim) -> int | None:
    """-1, 0 or 1 when ``a < b``, ``a == b`` or ``a > b`` is proven, else None."""
    difference = a - b
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    low, high = interval(difference)
    if low is not None and low > 0:
        return 1
    return -1 if high is not None and high < 0 else None
