"""Bands of keys: which conditions on query and key are a window, and how it is aligned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gecompiler.ir.dim_bounds import at_least, proven_le
from gecompiler.ir.dims import Dim
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.predicates import AtMost, Predicate

Align = Literal["top_left", "bottom_right"]


@dataclass(frozen=True, slots=True)
class Window:
    """Key j is allowed for query i when ``-left <= j - (i + offset) <= right``; -1: no bound."""

    left: int = -1
    right: int = -1
    align: Align = "top_left"

    @property
    def kind(self) -> str:
        """``""``, ``causal`` or ``sliding_window``."""
        if self.left < 0 and self.right < 0:
            return ""
        return "causal" if self.left < 0 and self.right == 0 else "sliding_window"


def extract(
    e: Elements, frame: Frame, conditions: Iterable[Predicate]
) -> tuple[Window, list[Predicate]]:
    """The window that conditions make up, and the conditions that are not in it."""
    bounds: dict[str, list[tuple[Dim, Predicate]]] = {"left": [], "right": []}
    rest: list[Predicate] = []
    for condition in conditions:
        found = _bound(e, frame, condition)
        if found is None:
            rest.append(condition)
        else:
            bounds[found[0]].append((found[1], condition))
    left, more_left = _tightest(bounds["left"])
    right, more_right = _tightest(bounds["right"])
    window = _aligned(left, right, frame)
    if window is None:
        return Window(), [*rest, *(c for side in bounds.values() for _, c in side)]
    return window, [*rest, *more_left, *more_right]


def _bound(e: Elements, frame: Frame, condition: Predicate) -> tuple[str, Dim] | None:
    """``("right", c)`` for ``j - i <= c``, ``("left", c)`` for ``i - j <= c``."""
    parts = e.coordinates.split(condition.value) if isinstance(condition, AtMost) else None
    if parts is None:
        return None
    coefficients, rest = parts
    steps = {n: c for n, c in coefficients.items() if c != 0}
    for side, sign in (("right", 1), ("left", -1)):
        # The only query of a decode step is 0 and does not show.
        wanted = {str(frame.j): sign} | ({} if frame.i == 0 else {str(frame.i): -sign})
        if steps == wanted:
            return side, -rest
    return None


def _tightest(bounds: list[tuple[Dim, Predicate]]) -> tuple[Dim | None, list[Predicate]]:
    """The smallest bound, and the conditions not proven to follow from it."""
    if not bounds:
        return None, []
    best = bounds[0]
    for bound in bounds[1:]:
        if proven_le(bound[0], best[0]):
            best = bound
    return best[0], [c for bound, c in bounds if not proven_le(best[0], bound)]


def _aligned(left: Dim | None, right: Dim | None, frame: Frame) -> Window | None:
    """The bounds as numbers from one corner or the other; None when neither makes them so.

    Where both do, the corner in which no later key is seen is the one that was meant.
    """
    offset = frame.sizes[3] - frame.sizes[2]
    found: list[Window] = []
    for align, shift in _CORNERS if offset != 0 else _CORNERS[:1]:
        low = None if left is None else left + shift * offset
        high = None if right is None else right - shift * offset
        if _is_bound(low) and _is_bound(high):
            numbers = [-1 if n is None else int(str(n)) for n in (low, high)]
            found.append(Window(numbers[0], numbers[1], align))
    return min(found, key=lambda window: window.right != 0, default=None)


_CORNERS: tuple[tuple[Align, int], ...] = (("top_left", 0), ("bottom_right", 1))


def _is_bound(dim: Dim | None) -> bool:
    return dim is None or (isinstance(dim, int) and dim >= 0)


def never_empty(window: Window, frame: Frame) -> bool:
    """Whether every query is proven to have a key within the window."""
    queries, keys = frame.sizes[2], frame.sizes[3]
    offset = keys - queries if window.align == "bottom_right" else 0
    first = window.right < 0 or at_least(offset + window.right, 0)
    last = window.left < 0 or proven_le(queries - 1 + offset - window.left, keys - 1)
    return first and last
