"""What both ways of expanding FlashAttention need: its parts, its window, its mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.ir.dim_bounds import at_least, proven_le
from gecompiler.ir.dims import Dim
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder

ROWS_AND_HEADS = (0, 2, 1, 3)
"""The permutation from BNSD to BSND, and back."""


@dataclass(frozen=True)
class Expansion:
    """One FlashAttention being expanded; sizes are those of Q and K."""

    build: Builder
    attrs: FlashAttention
    q: str
    k: str
    v: str
    mask: str
    sinks: str

    @staticmethod
    def of(build: Builder, op: Op) -> Expansion:
        """The parts of the op, with heads first whatever its layout."""
        attrs = FlashAttention.of(op)
        q, k, v = op.inputs[:3]
        if attrs.reads_rows_first:
            q, k, v = (build.transpose(x, ROWS_AND_HEADS) for x in (q, k, v))
        build.sources = (q, k, v)
        return Expansion(build, attrs, q, k, v, op.input(3), op.input(4))

    @property
    def queries(self) -> Dim:
        """S."""
        return self.build.shape(self.q)[2]

    @property
    def keys(self) -> Dim:
        """T."""
        return self.build.shape(self.k)[2]

    @property
    def boolean(self) -> str:
        """The mask if it is boolean, else ``""``."""
        return self.mask if self.mask and self.build.dtype(self.mask) is DType.BOOL else ""

    @property
    def bias(self) -> str:
        """The mask if it is added, else ``""``."""
        return "" if self.boolean else self.mask

    @property
    def has_window(self) -> bool:
        """Whether a bound on the distance of keys is set."""
        return self.attrs.window_left >= 0 or self.attrs.window_right >= 0

    def may_be_empty(self) -> bool:
        """Whether some row might have no key (all of them masked by -inf counts as well)."""
        a = self.attrs
        offset = a.row_offset + (self.keys - self.queries if a.align == "bottom_right" else 0)
        first = a.window_right < 0 or at_least(offset + a.window_right, 0)
        last = a.window_left < 0 or proven_le(self.queries + offset - a.window_left, self.keys)
        return bool(self.mask) or not (first and last)

    def allowed(self) -> str:
        """A boolean tensor that broadcasts to (B, H, S, T); ``""`` where all keys are allowed."""
        window = self._window() if self.has_window else ""
        if window and self.boolean:
            return self.build.binary("And", window, self.boolean)
        return window or self.boolean

    def _window(self) -> str:
        """(1, 1, S, T): whether the distance of key and query lies within the bounds."""
        build, a = self.build, self.attrs
        s, t = self.queries, self.keys
        rows = build.reshape(build.arange(s, (self.q,)), (1, 1, s, 1))
        columns = build.reshape(build.arange(t, (self.k,)), (1, 1, 1, t))
        if a.align == "bottom_right":
            lead = build.binary("Sub", self._size(self.k), self._size(self.q))
            rows = build.binary("Add", rows, lead)
        if a.row_offset:
            first = build.constant(np.array(a.row_offset), DType.I64, "first_row")
            rows = build.binary("Add", rows, first)
        distance = build.binary("Sub", columns, rows)
        bounds: list[str] = []
        for op_type, bound in (("Greater", a.window_right), ("Less", -a.window_left)):
            if (a.window_right if op_type == "Greater" else a.window_left) >= 0:
                limit = build.constant(np.array(bound), DType.I64, "bound")
                outside = build.binary(op_type, distance, limit, DType.BOOL)
                bounds.append(build.unary("Not", outside))
        return build.binary("And", bounds[0], bounds[1]) if len(bounds) == 2 else bounds[0]

    def _size(self, value: str) -> str:
        return self.build.runtime_dim(self.build.shape(value)[2], (value,))
