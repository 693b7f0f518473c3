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
from gecompiler.passes.parallel.key_cut import hides_keys

_LOW = -(2.0**22)
"""Below it the next number in single precision is half and more away: no score, but a mask."""


class KeyParts(AttentionParts):
    """One attention whose keys and values are cut."""

    def run(self) -> tuple[str, Sharding]:
        """Emits the part of a rank; the output's name and how it lies (a sum over the ranks)."""
        op, sizes, mesh = self._op, self._cut.found.sizes, self._values.mesh
        self._axes = self._values.plan.keys[op.name]
        self._ranks = mesh.axis_size(self._axes)
        keys, queries = sizes["t"], sizes.get("s", 1)
        window = self._attention if hides_keys(self._attention, queries, keys) else None
        self._own = _OwnKeys(self._cut.layouts["t"], keys, queries, self._axes, mesh, window)
        inputs = [
            self._values.name(value, self._choice.wanted(op, i, self._cut))
            for i, value in enumerate(op.inputs[:3])
        ]
        sinks = self._sinks()
        mask = self._mask(mean=self._attention.masked_row == "mean" and not sinks)
        type_ = self._local.graph.tensor(mask) if mask else None
        biased = type_ is not None and type_.dtype.is_float
        if mask or sinks:
            inputs += [mask, sinks] if sinks else [mask]
        name = self._local.graph.fresh(f"{op.name}_own_keys")
        made = replace(self._attention, window_left=-1, window_right=-1, row_offset=0)
        out, lse = self._emit_part(name, inputs, made)
        out = self._weighed(out, lse, even=biased and not sinks)
        operand = self._cut.found.outputs[0]
        assert operand is not None
        return out, Sharding(self._cut.layout(operand), (self._axes,))

    # ------------------------------------------------------------ what the rank sees

    def _mask(self, *, mean: bool) -> str:
        """The mask of the rank's keys; ``""`` where it sees all of them.

        ``mean``: rows without a key are the mean of all values: their scores are lowest, and equal.
        """
        mask, dtype = "", DType.BOOL
        if self._op.input(3):
            operand = self._cut.found.inputs[3]
            assert operand is not None
            mask = self._values.name(self._op.inputs[3], Sharding(self._cut.layout(operand)))
            type_ = self._local.graph.tensor(mask)
            assert type_ is not None
            dtype = type_.dtype
        if dtype.is_float and mean:
            mask = self._cast(mask, DType.F32)
            mask = self._emit("Max", [mask, self._number(LOWEST, mask)], mask)
        if self._own.hides:
            table = self._own_table("own_keys", self._own)
            mask = self._hidden(mask, table) if mask else table
        if not mask or not mean or dtype.is_float:
            return mask
        floor = self._own_table("own_floor", replace(self._own, floor=True, window=None))
        zero = Constant.of(np.float32(0))
        inputs = [mask, self._local.table(("zero",), "zero", zero, Sharding(())), floor]
        return self._made("Where", inputs, self._with_own(mask), DType.F32)

    def _own_table(self, stem: str, own: _OwnKeys) -> str:
        dtype = DType.F32 if own.floor else DType.BOOL
        whole = Constant(TensorType(dtype, own.shape), source=own, computed=True)
        sharding = Sharding((Split(self._axes), None, None))
        return self._local.table(own.key, stem, whole, sharding)

    def _hidden(self, mask: str, table: str) -> str:
        """The mask without what the table hides."""
        type_ = self._local.graph.tensor(mask)
        assert type_ is not None
        if type_.dtype is DType.BOOL:
            return self._made("And", [mask, table], self._with_own(mask), DType.BOOL)
        hidden = self._number(float("-inf"), mask)
        return self._made("Where", [table, mask, hidden], self._with_own(mask), type_.dtype)

    def _with_own(self, mask: str) -> tuple[int, ...]:
        return np.broadcast_shapes(self._local.shape(mask), (1, *self._own.shape[1:]))

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
        return self._made("Where", [table, sinks, hidden], type_.sizes, type_.dtype)

    # ------------------------------------------------------------ what it weighs

    def _weighed(self, out: str, lse: str, *, even: bool) -> str:
        """The output times what the rank's keys weigh among all ranks'.

        ``even``: scores may be so low that the number of keys is lost in their log-sum-exp. Where
        all are, keys weigh the same.
        """
        local = self._local
        own = local.reshape(lse, (1, *local.shape(lse)))
        every = local.all_gather(own, self._axes, 0)
        top = local.along("ReduceMax", every, 0)
        top = self._emit("Max", [top, self._number(LOWEST, top)], top)
        each = self._emit("Sub", [every, top], every)
        total = local.along("ReduceSum", self._emit("Exp", [each], every), 0, since=13)
        over, nan = total, self._attention.masked_row == "nan"
        if not nan:  # a row with keys has 1 and more
            over = self._emit("Max", [total, self._number(1.0, total)], total)
        weight = self._emit("Exp", [self._emit("Sub", [own, top], own)], own)
        weight = self._emit("Div", [weight, over], weight)
        if even:
            low = self._emit_as(DType.BOOL, "Less", [top, self._number(_LOW, top)], top)
            share = self._share(top)
            if nan:  # stays what it is where there is no key at all
                share = self._emit("Mul", [self._emit("Div", [total, total], top), share], top)
            weight = self._emit("Where", [low, share, weight], weight)
        spread = self._spread(local.reshape(weight, local.shape(weight)[1:]))
        wide = self._wide(out, spread)
        weighed = self._emit("Mul", [wide, spread], wide)
        narrow = local.graph.tensor(out)
        assert narrow is not None
        return self._cast(weighed, narrow.dtype)

    def _share(self, like: str) -> str:
        """What the keys that the rank counts are of all."""
        type_ = self._local.graph.tensor(like)
        assert type_ is not None
        mean = self._attention.masked_row == "mean"
        own = replace(self._own, window=None) if mean else self._own
        shares = Constant.of(own.shares().astype(type_.dtype.numpy), type_.dtype)
        shares = replace(shares, computed=True)
        sharding = Sharding((Split(self._axes), None, None, None))
        return self._local.table(("shares", type_.dtype, *own.key), "share", shares, sharding)

    def _made(self, op_type: str, inputs: list[str], shape: tuple[int, ...], dtype: DType) -> str:
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
    floor: bool = False
    """Lowest scores for what a rank counts and minus infinity for the rest, not True and False."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal masks."""
        return "own keys", self.layout, self.shape, self.axes, self.window, self.floor

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
        """The masks of all ranks."""
        seen = np.stack([self._of(rank) for rank in self._group()])
        return np.where(seen, LOWEST, -np.inf).astype(np.float32) if self.floor else seen

    def describe(self) -> str:
        """A few words for messages and the text form."""
        return "the keys that a rank counts"

    def shares(self) -> Array:
        """What the keys that a rank counts are of all: (ranks, 1, 1, queries or 1)."""
        counts = np.stack([self._of(rank).sum(1) for rank in self._group()])
        shares: Array = counts / np.maximum(counts.sum(0), 1)
        return shares[:, None, None, :]

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
