"""Elements of stored arrays: the formula in their coordinates that they follow.

Exporters of fixed sizes store masks and positions as arrays. A whole array is compared with the
few formulas that masks are made of (uniform, linear in the indices, a band ``l <= y - x <= u``, a
range of one index, two values told apart by one of these); equality is checked on every
element, so an answer is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.dims import Dim
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.types import DType
from gecompiler.passes.attention.coordinates import Coords
from gecompiler.passes.attention.elements import Choice, Element, Elements, Number, Truth, real
from gecompiler.passes.attention.predicates import Predicate, conjunction, negate

MAX_ELEMENTS = 1 << 24
"""Larger arrays are not looked into."""

_EXACT = 2**40
"""Numbers up to this are indices or positions; their sums fit an int64."""


def constant_element(e: Elements, constant: Constant, coords: Coords) -> Element | None:
    """The element of a constant at ``coords``, or None when no formula fits."""
    array = _array(constant)
    if array is None or array.size == 0 or array.ndim != len(coords):
        return None
    if array.dtype.kind == "V":  # ml_dtypes: every value is a float32 too
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        return None
    index = tuple(c if isinstance(c, int) else slice(None) for c in coords)
    if any(isinstance(i, int) and not -n <= i < n for i, n in zip(index, array.shape, strict=True)):
        return None
    view = array[index]
    return _fit(e, view, [c for c in coords if not isinstance(c, int)])


def _array(constant: Constant) -> Array | None:
    """The data, if it is there and not too much."""
    if constant.type.dtype is DType.STRING or constant.size > MAX_ELEMENTS:
        return None
    if not constant.has_data and constant.source is None:
        return None
    try:
        return constant.array()
    except MissingDataError:
        return None


def _fit(e: Elements, view: Array, coords: list[Dim]) -> Element | None:
    view, coords = _varying(view, coords)
    if view.ndim == 0:
        return element_of(view[()])
    if view.dtype.kind == "b":
        found = _predicate(e, view, coords)
        return None if found is None else Truth(found)
    return _linear(view, coords) or _two_valued(e, view, coords)


def element_of(item: object) -> Element:
    """A scalar as an element."""
    if isinstance(item, (bool, np.bool_)):
        return Truth(bool(item))
    return real(float(item)) if isinstance(item, (float, np.floating)) else Number(int(str(item)))


def _varying(view: Array, coords: list[Dim]) -> tuple[Array, list[Dim]]:
    """The array without the axes along which nothing changes."""
    kept: list[Dim] = []
    for coord in coords:
        axis = len(kept)
        first = view.take([0], axis=axis)
        if _equal(view, first):
            view = view.take(0, axis=axis)
        else:
            kept.append(coord)
    return view, kept


def _equal(a: Array, b: Array) -> bool:
    """Whether all elements are equal, NaN to NaN."""
    nan = a.dtype.kind == "f"
    return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b)))) if nan else bool(np.all(a == b))


def _linear(view: Array, coords: list[Dim]) -> Element | None:
    if np.any(np.abs(view.astype(np.float64)) > _EXACT) or np.any(view != view.round()):
        return None
    base = int(view[(0,) * view.ndim])
    total = np.full(view.shape, base, dtype=np.int64)
    value: Dim = base
    for axis, coord in enumerate(coords):
        corner = tuple(int(n == axis) for n in range(view.ndim))
        step = int(view[corner]) - base
        along = tuple(-1 if n == axis else 1 for n in range(view.ndim))
        total = total + step * np.arange(view.shape[axis]).reshape(along)
        value = value + step * coord
    return Number(value) if np.array_equal(total, view) else None


def _two_valued(e: Elements, view: Array, coords: list[Dim]) -> Element | None:
    first = view.reshape(-1)[0]
    is_first: NDArray[np.bool_] = view == first
    others = view[~is_first]
    if np.isnan(first) or others.size == 0 or not np.all(others == others[0]):
        return None
    condition = _predicate(e, is_first, coords)
    if condition is None:
        return None
    return Choice(condition, element_of(first), element_of(others[0]))


def _predicate(e: Elements, truth: NDArray[np.bool_], coords: list[Dim]) -> Predicate | None:
    """The formula of an array of booleans that varies along each of its axes."""
    rule = {1: _interval, 2: _band}.get(truth.ndim)
    if rule is None:
        return None
    found = rule(e, truth, coords)
    if found is not None:
        return found
    opposite = rule(e, ~truth, coords)
    return None if opposite is None else negate(opposite)


def _interval(e: Elements, truth: NDArray[np.bool_], coords: list[Dim]) -> Predicate | None:
    return _between(e, truth, np.arange(truth.shape[0]), coords[0])


def _band(e: Elements, truth: NDArray[np.bool_], coords: list[Dim]) -> Predicate | None:
    rows, columns = np.arange(truth.shape[0])[:, None], np.arange(truth.shape[1])[None, :]
    return _between(e, truth, columns - rows, coords[1] - coords[0])


def _between(
    e: Elements, truth: NDArray[np.bool_], numbers: NDArray[np.int64], dim: Dim
) -> Predicate | None:
    """``low <= dim <= high`` where exactly those numbers are marked."""
    from gecompiler.passes.attention.element_logic import at_most

    numbers = np.broadcast_to(numbers, truth.shape)
    inside = numbers[truth]
    low, high = int(inside.min()), int(inside.max())
    if not np.array_equal(truth, (numbers >= low) & (numbers <= high)):
        return None
    # Indices lie within the array, so a bound at its very end bounds nothing.
    below = True if high == numbers.max() else at_most(e, dim - high)
    above = True if low == numbers.min() else at_most(e, low - dim)
    return conjunction(below, above)
