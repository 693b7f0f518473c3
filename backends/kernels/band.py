"""The band of keys that a sliding window or causality leaves to each query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.flash_attention import FlashAttention


@dataclass(frozen=True, slots=True)
class Band:
    """Query ``i`` may attend key ``j`` when ``-left <= j - (i + offset) <= right``.

    A bound of None is no bound. ``keys`` is the number of keys.
    """

    keys: int
    left: int | None
    right: int | None
    offset: int

    @staticmethod
    def of(attrs: FlashAttention, queries: int, keys: int) -> Band:
        """The band that the op's window and alignment describe."""
        return Band(
            keys,
            attrs.window_left if attrs.window_left >= 0 else None,
            attrs.window_right if attrs.window_right >= 0 else None,
            keys - queries if attrs.align == "bottom_right" else 0,
        )

    def reach(self, q0: int, q1: int) -> tuple[int, int]:
        """The smallest ``[first, end)`` of keys outside which no query of [q0, q1) attends."""
        first = 0 if self.left is None else q0 + self.offset - self.left
        end = self.keys if self.right is None else q1 + self.offset + self.right
        return max(0, first), min(self.keys, end)

    def allowed(self, q0: int, q1: int, k0: int, k1: int) -> NDArray[np.bool_] | None:
        """Which keys of [k0, k1) each query of [q0, q1) may attend; None means all."""
        lowest, highest = k0 - (q1 - 1 + self.offset), k1 - 1 - (q0 + self.offset)
        cut_left = self.left is not None and lowest < -self.left
        cut_right = self.right is not None and highest > self.right
        if not cut_left and not cut_right:
            return None
        distance = np.arange(k0, k1)[None, :] - (np.arange(q0, q1)[:, None] + self.offset)
        inside = np.ones(distance.shape, dtype=np.bool_)
        if self.left is not None:
            inside &= distance >= -self.left
        if self.right is not None:
            inside &= distance <= self.right
        return inside
