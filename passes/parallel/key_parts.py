"""Attention on keys that are cut: every rank has all queries and a part of the keys.

The ranks' log-sum-exps are gathered, a number for each query and head; each rank then knows what
its part weighs, and what the ranks have together is a sum still to be made::

    O = sum_r w_r O_r        w_r = exp(lse_r - m) / sum_k exp(lse_k - m)        m = max_k lse_k

A product of weights follows as a rule, and the sum is made after it, together with that over the
ranks of ``tp`` where there are any: one all-reduce for both.

Keys that several ranks hold (new ones, copies past the end) count on the first of them; a rank's
own keys are a constant mask, with the window of causal or local attention in it, since the
positions of what a rank holds need not follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import OpInfo
from gecompiler.ir.parallel import Layout, Mesh, Sharding, Split
from gecompiler.ir.parallel.layout import held_first, held_indices, local_size
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.parallel.attention_parts import LOWEST, AttentionParts


class KeyParts(AttentionParts):
    """One attention whose keys and values are cut."""

    def run(self) -> tuple[str, Sharding]:
        """Emits the part of a rank; the output's name and how it lies (a sum over the ranks)."""
        op, sizes, mesh = self._op, self._cut.found.sizes, self._values.mesh
        self._axes = self._values.plan.keys[op.name]
        self._ranks = mesh.axis_size(self._axes)
        self._own = _OwnKeys(
            self._cut.layouts["t"], sizes["t"], sizes.get("s", 1), self._axes, mesh, self._window()
        )
        inputs = [
            self._values.name(value, self._choice.wanted(op, i, self._cut))
            for i, value in enumerate(op.inputs[:3])
        ]
        values = inputs[2]
        mask, sinks = self._mask(), self._sinks()
        if mask or sinks:
            inputs += [mask, sinks] if sinks else [mask]
        name = self._local.graph.fresh(f"{op.name}_own_keys")
        made = replace(self._attention, window_left=-1, window_right=-1, row_offset=0)
        out, lse = self._emit_part(name, inputs, made)
        out = self._weighed(out, lse, values, may_be_empty=bool(mask) and not sinks)
        operand = self._cut.found.outputs[0]
        assert operand is not None
        return out, Sharding(self._cut.layout(operand), (self._axes,))

    # ------------------------------------------------------------ what the rank sees

    def _window(self) -> FlashAttention | None:
        """The attention whose window hides some key from some query."""
        attention, sizes = self._attention, self._cut.found.sizes
        keys, queries = sizes["t"], sizes.get("s", 1)
        first = attention.offset(queries, keys)
        left, right = attention.window_left, attention.window_right
        ahead = right != -1 and keys - 1 > first + right
        behind = left != -1 and first + queries - 1 - left > 0
        return attention if ahead or behind else None

    def _mask(self) -> str:
        """The mask of the rank's keys; ``""`` where it sees all of them."""
        mask = ""
        if self._op.input(3):
            operand = self._cut.found.inputs[3]
            assert operand is not None
            mask = self._values.name(self._op.inputs[3], Sharding(self._cut.layout(operand)))
        if not self._own.hides:
            return mask
        whole = Constant(TensorType(DType.BOOL, self._own.shape), source=self._own)
        sharding = Sharding((Split(self._axes), None, None))
        table = self._local.table(self._own.key, "own_keys", whole, sharding)
        if not mask:
            return table
        type_ = self._local.graph.tensor(mask)
        assert type_ is not None
        shape = np.broadcast_shapes(type_.sizes, (1, *self._own.shape[1:]))
        if type_.dtype is DType.BOOL:
            return self._joined("And", [mask, table], shape, DType.BOOL)
        hidden = self._number(float("-inf"), mask)
        return self._joined("Where", [table, mask, hidden], shape, type_.dtype)

    def _sinks(self) -> str:
        """The extra key of each head, which the first rank counts."""
        if not self._op.input(4):
            return ""
        operand = self._cut.found.inputs[4]
        assert operand is not None
        sinks = self._values.name(self._op.inputs[4], Sharding(self._cut.layout(operand)))
        first = Constant.of(np.arange(self._ranks) == 0)
        table = self._local.table(
            ("first", self._axes), "is_first", first, Sharding((Split(self._axes),))
        )
        type_ = self._local.graph.tensor(sinks)
        assert type_ is not None
        hidden = self._number(float("-inf"), sinks)
        return self._joined("Where", [table, sinks, hidden], type_.sizes, type_.dtype)

    # ------------------------------------------------------------ what it weighs

    def _weighed(self, out: str, lse: str, values: str, *, may_be_empty: bool) -> str:
        """The output times what the rank's keys weigh among all ranks'."""
        local = self._local
        own = local.reshape(lse, (1, *local.shape(lse)))
        every = local.all_gather(own, self._axes, 0)
        top = local.along("ReduceMax", every, 0)
        top = self._emit("Max", [top, self._number(LOWEST, top)], top)
        each = self._emit("Sub", [every, top], every)
        total = local.along("ReduceSum", self._emit("Exp", [each], every), 0, since=13)
        weight = self._emit("Exp", [self._emit("Sub", [own, top], own)], own)
        fallback = may_be_empty and self._attention.masked_row == "mean"
        over = total
        if self._attention.masked_row != "nan":  # a row with keys has 1 and more
            over = self._emit("Max", [total, self._number(1.0, total)], total)
        weight = self._emit("Div", [weight, over], weight)
        spread = self._spread(local.reshape(weight, local.shape(weight)[1:]))
        wide = self._wide(out, spread)
        weighed = self._emit("Mul", [wide, spread], wide)
        if fallback:
            empty = self._spread(local.reshape(total, local.shape(total)[1:]))
            no_keys = self._emit_as(DType.BOOL, "Equal", [empty, self._number(0.0, empty)], empty)
            mean = self._share_of_mean(values, weighed)
            weighed = self._emit("Where", [no_keys, mean, weighed], weighed)
        narrow = local.graph.tensor(out)
        assert narrow is not None
        return self._cast(weighed, narrow.dtype)

    def _share_of_mean(self, values: str, like: str) -> str:
        """What the rank's own values are of the mean of all, for each head."""
        wide = self._wide(values, like)
        type_ = self._local.graph.tensor(wide)
        assert type_ is not None
        axis = 1 if self._attention.reads_rows_first else 2
        shares = Constant.of(self._own.shares(axis).astype(type_.dtype.numpy), type_.dtype)
        sharding = Sharding((Split(self._axes), None, None, None))
        key = ("shares", axis, type_.dtype, *self._own.key)
        table = self._local.table(key, "own_shares", shares, sharding)
        mean = self._local.along(
            "ReduceSum", self._emit("Mul", [wide, table], wide), axis, since=13
        )
        return self._each_head(mean, like)

    def _joined(self, op_type: str, inputs: list[str], shape: tuple[int, ...], dtype: DType) -> str:
        return self._local.graph.emit(
            op_type,
            inputs,
            TensorType(dtype, shape),
            info=OpInfo(scope=self._op.info.scope, phase=self._local.phase),
            stem=f"{self._op.name}_own",
        )


@dataclass(frozen=True)
class _OwnKeys:
    """Which of the keys that it holds a rank counts, for each query where these differ."""

    layout: Layout
    keys: int
    queries: int
    axes: str
    mesh: Mesh
    window: FlashAttention | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal masks."""
        return "own keys", self.layout, self.shape, self.axes, self.window

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of all ranks' masks: ranks, queries (1: all the same), keys held."""
        held = local_size(self.layout, self.keys, self.mesh)
        return self.mesh.axis_size(self.axes), self.queries if self.window else 1, held

    @property
    def hides(self) -> bool:
        """Whether a rank holds what it may not count."""
        ranks, _, held = self.shape
        return self.window is not None or ranks * held != self.keys

    def load(self, type_: TensorType) -> Array:
        """True where a rank counts a key."""
        return np.stack([self._of(rank) for rank in self._group()])

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return "the keys that a rank counts"

    def shares(self, axis: int) -> Array:
        """What a key that is counted is of all: (ranks, 1, held, 1), held keys at the axis."""
        counted = np.stack([self._counted(rank) for rank in self._group()]) / self.keys
        shape = [len(counted), 1, 1, 1]
        shape[axis] = counted.shape[1]
        return counted.reshape(shape)

    def _group(self) -> tuple[int, ...]:
        return self.mesh.group(self.axes, 0)

    def _counted(self, rank: int) -> Array:
        return held_first(self.layout, self.keys, self.mesh, rank)

    def _of(self, rank: int) -> Array:
        counted = self._counted(rank)[None, :]
        if self.window is None:
            return counted
        at = held_indices(self.layout, self.keys, self.mesh, rank)[None, :]
        first = self.window.offset(self.queries, self.keys)
        distance = at - (first + np.arange(self.queries)[:, None])
        left, right = self.window.window_left, self.window.window_right
        seen: Array = counted & ((distance >= -left) | (left == -1))
        return seen & ((distance <= right) | (right == -1))
