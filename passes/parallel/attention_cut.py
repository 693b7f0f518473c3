"""Attention whose heads or queries are cut.

Heads: query head h reads KV head h // (H // G), so that keys and values are cut like the query
heads that read them, and neighbours share a KV head where there are fewer than ranks.

Queries cut by tokens see all keys (gathered). The rows of a rank are not the first ones, so that
a window must be moved: a causal rank takes the keys up to its last row alone, with which the op's
``bottom_right`` alignment is right again and no work is done in vain; other windows become a
mask, a table of which each rank holds its rows.

Source: Korthikanti et al. 2022 (sequence parallel), Jacobs et al. 2023 (Ulysses).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Layout, Mesh, Sharding, Split
from gecompiler.ir.parallel.layout import is_exact
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.plan import HeadCut


def head_cut(heads: int, groups: int, axes: str, mesh: Mesh) -> HeadCut | None:
    """How heads are shared out over the axes; None where a rank's would straddle KV heads.

    With fewer KV heads than ranks neighbours hold the same one; with fewer heads than ranks, or
    a number that does not divide, the last ranks hold copies whose results nobody uses.
    """
    ranks, per = mesh.axis_size(axes), heads // groups
    held = -(-heads // ranks)
    if held % per == 0:
        return HeadCut(_split(axes, heads, held, 1, ranks), _split(axes, groups, held // per, 1, ranks))
    if per % held:
        return None
    return HeadCut(_split(axes, heads, held, 1, ranks), _split(axes, groups, 1, per // held, ranks))


def _split(axes: str, size: int, held: int, shared: int, ranks: int) -> Split:
    usual = shared == 1 and held == -(-size // ranks)
    return Split(axes, 0 if usual else held, shared)


@dataclass(frozen=True)
class _Window:
    """The table of a window: True where key j is allowed for query i."""

    queries: int
    keys: int
    left: int
    right: int
    offset: int

    def load(self, type_: TensorType) -> Array:
        """The table, [queries, keys]."""
        distance = np.arange(self.keys)[None, :] - np.arange(self.queries)[:, None] - self.offset
        allowed: Array = np.ones(distance.shape, bool)
        if self.left >= 0:
            allowed &= distance >= -self.left
        if self.right >= 0:
            allowed &= distance <= self.right
        return allowed

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return f"window {self.left}, {self.right}"


@dataclass
class AttentionCut:
    """An attention on local inputs: Q (B, H, S, D), K, V of all keys, mask, sinks."""

    local: LocalGraph
    op: Op
    inputs: list[str]
    attention: FlashAttention
    queries: int
    """The rows of the whole model."""
    keys: int

    @property
    def _offset(self) -> int:
        return 0 if self.attention.align == "top_left" else self.keys - self.queries

    @property
    def has_window(self) -> bool:
        """Whether it matters which rows a rank holds."""
        return self.attention.window_left != -1 or self.attention.window_right != -1

    def skips_keys(self, rows: Layout) -> bool:
        """Whether a rank's rows need the keys up to the last of them alone."""
        a = self.attention
        masked = len(self.inputs) > 3 and bool(self.inputs[3])
        return (
            a.window_right == 0
            and self._offset >= 0
            and isinstance(rows, Split)
            and is_exact(rows, self.queries, self.local.mesh)
            and not (masked and a.masked_row == "mean")
        )

    def to_rows(self, first: int, count: int) -> None:
        """Makes the window right for ``count`` rows from ``first`` on, by dropping later keys."""
        stop = first + self._offset + count
        axis = 1 if self.attention.reads_rows_first else 2
        for i in (1, 2):
            if stop < self.keys:
                self.inputs[i] = self.local.slice(self.inputs[i], axis, 0, stop)
        if len(self.inputs) > 3 and self.inputs[3] and stop < self.keys:
            shape = self.local.shape(self.inputs[3])
            if shape and shape[-1] == self.keys > 1:
                mask = self.local.slice(self.inputs[3], len(shape) - 1, 0, stop)
                self.inputs[3] = mask
        self.attention = replace(self.attention, align="bottom_right")

    def to_table(self, rows: Layout) -> None:
        """Makes the window a mask, of which each rank holds its rows."""
        a = self.attention
        source = _Window(self.queries, self.keys, a.window_left, a.window_right, self._offset)
        whole = Constant(TensorType(DType.BOOL, (self.queries, self.keys)), source=source)
        table = self._shared_table(whole, Sharding((rows, None)), source)
        if len(self.inputs) > 3 and self.inputs[3]:
            table = self._both(table, self.inputs[3])
        self.inputs[3:4] = [table]
        self.attention = replace(a, window_left=-1, window_right=-1, align="top_left")

    def _shared_table(self, whole: Constant, sharding: Sharding, source: _Window) -> str:
        return self.local.table(("window", source, sharding), "window", whole, sharding)

    def _both(self, table: str, mask: str) -> str:
        shape = np.broadcast_shapes(self.local.shape(table), self.local.shape(mask))
        type_ = self.local.graph.tensor(mask)
        assert type_ is not None
        stem = f"{mask}_window"
        if type_.dtype is DType.BOOL:
            return self.local.emit("And", [table, mask], shape, {}, like=mask, stem=stem)
        none = np.asarray(-math.inf).astype(type_.dtype.numpy)
        masked = self.local.graph.constant_of("masked", none)
        return self.local.emit("Where", [table, mask, masked], shape, {}, like=mask, stem=stem)

    def finished(self) -> Op:
        """The op on local inputs."""
        axis = 2 if self.attention.reads_rows_first else 1
        heads, groups = (self.local.shape(self.inputs[i])[axis] for i in (0, 1))
        attention = replace(self.attention, q_heads=heads, kv_heads=groups)
        return self.op.with_(inputs=tuple(self.inputs), attrs=attention.attrs())
