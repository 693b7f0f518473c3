"""Whether an element type holds the whole numbers of a formula exactly.

Positions are computed in whatever type a model likes. ``j <= i`` is causality only as long as
neither wraps (int8) nor is rounded (float16 beyond 2048), whatever the sizes at run time.
"""

from __future__ import annotations

from gecompiler.ir.dims import Dim, Expr
from gecompiler.ir.types import DType
from gecompiler.passes.attention.coordinates import Coordinates
from gecompiler.passes.attention.element_logic import leaves
from gecompiler.passes.attention.elements import Element, Magnitude, Number

LONGEST = 2**22
"""Sizes known at run time only are not longer than this: attention has a score per pair."""

_EXACT = {DType.F16: 2**11, DType.BF16: 2**8, DType.F32: 2**24}
"""Floating-point types hold every whole number up to this."""

_UNLIMITED = (DType.I64, DType.F64, DType.BOOL)


def is_exact(coordinates: Coordinates, dtype: DType | None, element: Element) -> bool:
    """Whether all whole numbers that the element may be are held by the type."""
    if dtype is None or dtype in _UNLIMITED:
        return True
    low, high = _limits(dtype)
    for leaf in leaves(element):
        if not isinstance(leaf, (Number, Magnitude)):
            continue
        if isinstance(leaf.value, int) and dtype.is_float:
            continue  # computed in that very type, or stored
        least = -high if isinstance(leaf, Magnitude) else low
        if _most(coordinates, leaf.value) > high or _most(coordinates, -leaf.value) > -least:
            return False
    return True


def _limits(dtype: DType) -> tuple[int, int]:
    if dtype in _EXACT:
        return -_EXACT[dtype], _EXACT[dtype]
    if dtype.is_integer:
        signed = int(not dtype.short.startswith("u"))
        return -signed * 2 ** (dtype.bits - 1), 2 ** (dtype.bits - signed) - 1
    return 0, 0


def _most(coordinates: Coordinates, value: Dim) -> int:
    """A bound that no value exceeds, however long the sizes are."""
    if isinstance(value, int):
        return value
    bound = coordinates.most(value)
    found: Dim = value if bound is None else bound
    if isinstance(found, int):
        return found
    assert isinstance(found, Expr)
    total = 0
    for monomial, number in found.terms:
        degree = sum(power for _, power in monomial)
        if number > 0:
            total += int(number) * LONGEST**degree
        elif not monomial:
            total += int(number)
    return total
