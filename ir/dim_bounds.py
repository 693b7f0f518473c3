"""What can be proven of a dim's range, symbols being non-negative.

Interval arithmetic over the normal form: sound, not complete. "Not proven" is the answer
wherever the truth needs more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from gecompiler.ir.dims import Atom, Call, Dim, Expr, Symbol, as_atom, maximum, minimum

Interval = tuple["int | None", "int | None"]
"""Least and greatest value, each None where it is not bounded."""

_SIZE: Interval = (0, None)
_Order = Callable[[Dim, Dim], bool]


def interval(dim: Dim) -> Interval:
    """Bounds that hold for every non-negative value of the symbols."""
    return (dim, dim) if isinstance(dim, int) else _of_polynomial(dim)


@lru_cache(maxsize=8192)
def _of_polynomial(dim: Expr) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in dim.terms:
        part: Interval = (coefficient, coefficient)
        for atom, power in monomial:
            for _ in range(power):
                part = _times(part, _of_atom(atom))
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


def _of_atom(atom: Atom) -> Interval:
    if isinstance(atom, Symbol):
        return _SIZE
    return _of_call(atom)


def _of_call(call: Call) -> Interval:
    parts = [interval(a) for a in call.args]
    lows = [p[0] for p in parts if p[0] is not None]
    highs = [p[1] for p in parts if p[1] is not None]
    if call.function == "bcast":
        return 0, max(highs) if len(highs) == len(parts) else None
    if call.function == "max":
        return max(lows, default=None), max(highs) if len(highs) == len(parts) else None
    if call.function == "min":
        return min(lows) if len(lows) == len(parts) else None, min(highs, default=None)
    (low, high), (low_b, high_b) = parts
    if low_b is None or low_b < 0:
        return None, None
    if call.function == "mod":
        return 0, None if high_b is None else max(high_b - 1, 0)
    # floordiv: a divisor of 0 has no meaning, so it is at least 1.
    least = max(low_b, 1)
    floor = None if low is None else min(low, 0)
    ceiling = None if high is None else high // least if high >= 0 else -1
    return floor, ceiling


def at_least(dim: Dim, bound: int) -> bool:
    """Whether ``dim >= bound`` is proven."""
    low = interval(dim)[0]
    return low is not None and low >= bound


def proven_le(a: Dim, b: Dim) -> bool:
    """Whether ``a <= b`` is proven."""
    if a == b or at_least(b - a, 0):
        return True
    small, large = as_atom(a), as_atom(b)
    if isinstance(small, Call) and small.function == "min":
        return any(proven_le(x, b) for x in small.args)
    return (
        isinstance(large, Call)
        and large.function == "max"
        and any(proven_le(a, x) for x in large.args)
    )


def smallest(*dims: Dim) -> Dim:
    """`dims.minimum`, without the dims that are proven not to matter."""
    kept = _pruned(dims, proven_le)
    return kept[0] if len(kept) == 1 else minimum(*kept)


def largest(*dims: Dim) -> Dim:
    """`dims.maximum`, without the dims that are proven not to matter."""
    kept = _pruned(dims, lambda a, b: proven_le(b, a))
    return kept[0] if len(kept) == 1 else maximum(*kept)


def _pruned(dims: Iterable[Dim], wins: _Order) -> list[Dim]:
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
