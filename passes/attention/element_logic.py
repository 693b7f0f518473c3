"""Arithmetic and comparison of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dims import Dim, floordiv, mod
from gecompiler.ir.types import DType
from gecompiler.passes.attention.elements import (
    Choice,
    Element,
    Elements,
    Magnitude,
    Number,
    Opaque,
    Real,
    Truth,
    number_of,
    real,
)
from gecompiler.passes.attention.predicates import (
    AtMost,
    Lookup,
    Predicate,
    conjunction,
    negate,
    select,
)

MAX_LEAVES = 8
"""Nested choices with more leaves than this are not followed."""


def at_most(e: Elements, dim: Dim) -> Predicate:
    """``dim <= 0``, decided where the coordinates' ranges decide it."""
    if isinstance(dim, int):
        return dim <= 0
    if e.coordinates.never_above(dim, 0):
        return True
    return False if e.coordinates.always_above(dim, 0) else AtMost(dim)


def choice(condition: Predicate, yes: Element, no: Element) -> Element:
    """``yes`` where the condition holds, else ``no``."""
    if isinstance(condition, bool):
        return yes if condition else no
    if isinstance(yes, Truth) and isinstance(no, Truth):
        return Truth(select(condition, yes.predicate, no.predicate))
    return yes if yes == no else Choice(condition, yes, no)


def leaves(element: Element) -> tuple[Element, ...]:
    """The elements that a choice chooses among."""
    if isinstance(element, Choice):
        return (*leaves(element.yes), *leaves(element.no))
    return (element,)


def lift(function: Callable[[Element], Element | None], x: Element) -> Element | None:
    """``function`` of every leaf of a choice."""
    if not isinstance(x, Choice):
        return function(x)
    yes, no = lift(function, x.yes), lift(function, x.no)
    return None if yes is None or no is None else choice(x.condition, yes, no)


def lift2(
    function: Callable[[Element, Element], Element | None], a: Element, b: Element
) -> Element | None:
    """``function`` of every pair of leaves of two choices."""
    if len(leaves(a)) * len(leaves(b)) > MAX_LEAVES:
        return None
    return lift(lambda x: lift(lambda y: function(x, y), b), a)


# ---------------------------------------------------------------- numbers


def as_number(element: Element) -> Element:
    """A boolean as 0 or 1, anything else as it is."""
    return (
        choice(element.predicate, Number(1), Number(0)) if isinstance(element, Truth) else element
    )


def arithmetic(op_type: str, dtype: DType, a: Element, b: Element) -> Element | None:
    """The element of ``a op b`` in that element type; None when nothing is known of it."""
    return lift2(lambda x, y: _arithmetic(op_type, dtype, x, y), as_number(a), as_number(b))


def _arithmetic(op_type: str, dtype: DType, a: Element, b: Element) -> Element | None:
    constants = number_of(a) is not None and number_of(b) is not None
    if isinstance(a, Number) and isinstance(b, Number) and not (constants and dtype.is_float):
        return _whole(op_type, dtype, a, b)
    if isinstance(b, Opaque) and op_type in ("Add", "Mul"):
        a, b = b, a
    if isinstance(a, Opaque):
        neutral = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}[op_type]
        return a if number_of(b) == neutral else None
    x, y = number_of(a), number_of(b)
    if x is None or y is None or not dtype.is_float:
        return None
    with np.errstate(all="ignore"):
        pair = np.array([x, y]).astype(dtype.numpy)
        return real(float(_FLOAT[op_type](pair[0], pair[1])))


def _whole(op_type: str, dtype: DType, a: Number, b: Number) -> Element | None:
    if op_type == "Add":
        return Number(a.value + b.value)
    if op_type == "Sub":
        wraps = dtype.short[0] == "u" and not at_least(a.value - b.value, 0)
        return None if wraps else Number(a.value - b.value)
    if op_type == "Mul":
        return Number(a.value * b.value)
    if b.value != 0 and mod(a.value, b.value) == 0:
        return Number(floordiv(a.value, b.value))
    nonnegative = isinstance(a.value, int) and isinstance(b.value, int) and a.value >= 0 < b.value
    return Number(floordiv(a.value, b.value)) if dtype.is_integer and nonnegative else None


_FLOAT: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": np.divide,
}

FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "Sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "Reciprocal": lambda x: 1 / x if x else math.inf,
    "Exp": lambda x: math.exp(x) if x < 700 else math.inf,
    "Floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "Ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
}
"""Functions of one number that scales are computed with."""


def negative(element: Element) -> Element | None:
    """``-x``."""
    if isinstance(element, Number):
        return Number(-element.value)
    return Real(-element.value) if isinstance(element, Real) else None


def magnitude(e: Elements, element: Element) -> Element | None:
    """``|x|``."""
    if isinstance(element, Number):
        if isinstance(element.value, int):
            return Number(abs(element.value))
        nonnegative = e.coordinates.never_above(-element.value, 0)
        return element if nonnegative else Magnitude(element.value)
    return Real(abs(element.value)) if isinstance(element, Real) else None


# ---------------------------------------------------------------- comparison


def compare(e: Elements, op_type: str, a: Element, b: Element) -> Predicate | None:
    """The predicate of a comparison op, or None."""
    a, b = as_number(a), as_number(b)
    if len(leaves(a)) * len(leaves(b)) > MAX_LEAVES:
        return None
    return _compare(e, op_type, a, b)


def _compare(e: Elements, op_type: str, a: Element, b: Element) -> Predicate | None:
    if isinstance(a, Choice) or isinstance(b, Choice):
        split = a if isinstance(a, Choice) else b
        assert isinstance(split, Choice)
        yes, no = ((split.yes, b), (split.no, b)) if split is a else ((a, split.yes), (a, split.no))
        first, second = _compare(e, op_type, *yes), _compare(e, op_type, *no)
        return None if first is None or second is None else select(split.condition, first, second)
    if op_type in ("Greater", "GreaterOrEqual"):
        return _compare(e, op_type.replace("Greater", "Less"), b, a)
    if op_type == "Equal":
        return _equal(e, a, b)
    strict = int(op_type == "Less")
    if isinstance(a, Magnitude) and isinstance(b, Number):
        bound = b.value - strict
        return conjunction(at_most(e, a.value - bound), at_most(e, -a.value - bound))
    if isinstance(a, Number) and isinstance(b, Magnitude):
        opposite = _compare(e, "LessOrEqual" if strict else "Less", b, a)
        return None if opposite is None else negate(opposite)
    if isinstance(a, Number) and isinstance(b, Number):
        return at_most(e, a.value - b.value + strict)
    x, y = number_of(a), number_of(b)
    if x is None or y is None:
        return None
    return x < y if strict else x <= y


def _equal(e: Elements, a: Element, b: Element) -> Predicate | None:
    if isinstance(a, Number) and isinstance(b, Number):
        difference = a.value - b.value
        return conjunction(at_most(e, difference), at_most(e, -difference))
    if isinstance(b, Opaque):
        a, b = b, a
    x, y = number_of(a), number_of(b)
    if isinstance(a, Opaque):
        return Lookup(a.value, a.coords, positive=False) if y == 0 else None
    return x == y if x is not None and y is not None else None


def truth(e: Elements, element: Element) -> Predicate | None:
    """Whether an element is non-zero, which is how Cast makes booleans."""
    if isinstance(element, Truth):
        return element.predicate
    if isinstance(element, Opaque):
        return Lookup(element.value, element.coords)
    zero = compare(e, "Equal", element, Number(0))
    return None if zero is None else negate(zero)
