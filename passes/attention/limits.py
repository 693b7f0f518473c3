"""What size a number must have in each element type to act as a mask, or to be no matter at all.

Masks in real models are numbers: -inf, the lowest finite one, -1e9, -1e4. What each does to a
score depends on how sums round in the type they are made in, so there is one table per type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gecompiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes (absolute values) from which on, or up to which, numbers of one type behave alike."""

    largest: float
    """The largest finite number: what lies beyond becomes infinite."""
    swallowing: float
    """From here on a number masks: a score added to it is lost, or nearly."""
    absorbing: float
    """From here on sums, in the type that attention adds in, round away any ordinary score."""
    replacing: float
    """From here on a number that stands in place of a score is out of reach of other scores."""
    flooring: float
    """From here on a lower bound on scores only keeps sums of masks from overflowing."""
    small: float
    """Up to here a bias cannot lift a key that is masked above one that is not."""
    exact: float
    """Up to here a number added to a whole row changes nothing but the scores' rounding."""


_WIDE = Limits(
    largest=math.inf,
    swallowing=1e30,
    absorbing=1e12,
    replacing=1e9,
    flooring=1e30,
    small=1e20,
    exact=16.0,
)

_LIMITS: Mapping[DType, Limits] = {
    DType.F16: Limits(65504.0, 6e4, 6e4, 6e4, 1e4, 1e4, 1.0),
    DType.BF16: Limits(3.3895314e38, 1e30, 1e12, 1e9, 1e30, 1e20, 1.0),
    DType.F32: Limits(3.4028235e38, 1e30, 1e12, 1e9, 1e30, 1e20, 16.0),
    DType.F64: Limits(1.7976931348623157e308, 1e30, 1e18, 1e9, 1e30, 1e20, 16.0),
}


def limits(dtype: DType) -> Limits:
    """The limits of an element type; those of float32 without its range for other types."""
    return _LIMITS.get(dtype, _WIDE)
