"""Attention on tokens that are cut: all-to-all from tokens to heads, and back.

Each rank gets all tokens of some of its heads; what is moved does not grow with the ranks
(DeepSpeed-Ulysses, Jacobs et al. 2023). Keys and values of fewer heads than ranks are gathered,
and each rank takes the one that its query heads read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.parallel import Sharding, Split
from gecompiler.ir.parallel.layout import is_exact, local_size
from gecompiler.ir.types import TensorType
from gecompiler.passes.parallel.token_attention import TokenAttention


class HeadExchange(TokenAttention):
    """One attention whose queries are cut by tokens."""

    def _refusal(self, rows: Split) -> str:
        found, mesh = self._cut.found, self._values.mesh
        ranks = mesh.axis_size(rows.axes)
        heads, groups = (self._held(label) for label in "hg")
        if len(self._op.outputs) > 1 or self._op.input(4):
            return "keys are gathered: log-sum-exp or sinks are not exchanged"
        if heads % ranks or (groups % ranks and ranks % groups):
            return f"keys are gathered: {heads} heads ({groups} of keys) for {ranks} ranks"
        if groups % ranks and (heads // groups) % (heads // ranks):
            return "keys are gathered: a rank's heads would straddle KV heads"
        if self._op.input(3) and ("h",) in (found.inputs[3] or ()):
            return "keys are gathered: the mask differs between heads"
        sizes = (found.sizes.get("s", 1), found.sizes.get("t", 1))
        if not all(is_exact(Split(rows.axes), size, mesh) for size in sizes):
            return f"keys are gathered: {sizes[0]} tokens for {ranks} ranks"
        return ""

    def _held(self, label: str) -> int:
        size = self._cut.found.sizes.get(label, 1)
        return local_size(self._cut.layouts.get(label), size, self._values.mesh)

    def run(self) -> tuple[str, Sharding]:
        """Emits the exchanges and the attention; the output's name and how it lies."""
        assert isinstance(self._rows, Split)
        axes, op, ranks = self._rows.axes, self._op, self._values.mesh.axis_size(self._rows.axes)
        heads_axis, rows_axis = (2, 1) if self._attention.reads_rows_first else (1, 2)
        inputs = [self._exchanged(0, "s", heads_axis, rows_axis)]
        if self._held("g") % ranks == 0:
            inputs += [self._exchanged(i, "t", heads_axis, rows_axis) for i in (1, 2)]
        else:
            inputs += [self._picked(i, heads_axis) for i in (1, 2)]
        if op.input(3):
            operand = self._cut.found.inputs[3]
            assert operand is not None
            whole = replace(self._cut, layouts={**self._cut.layouts, "s": None})
            inputs.append(self._values.name(op.inputs[3], Sharding(whole.layout(operand))))
        shape = list(self._local.shape(inputs[0]))
        shape[3] = self._local.shape(inputs[2])[3]
        if self._attention.reads_rows_first != self._attention.writes_rows_first:
            shape[1], shape[2] = shape[2], shape[1]
        heads, groups = (self._local.shape(inputs[i])[heads_axis] for i in (0, 1))
        attrs = replace(self._attention, q_heads=heads, kv_heads=groups).attrs()
        graph, whole_type = self._local.graph, self._values.whole.tensor(op.outputs[0])
        assert whole_type is not None
        out = graph.fresh(f"{op.outputs[0]}_heads")
        made = op.with_(inputs=tuple(inputs), outputs=(out,), attrs=attrs)
        graph.add_op(made, [TensorType(whole_type.dtype, tuple(shape))])
        split, concat = (1, 2) if self._attention.writes_rows_first else (2, 1)
        back = self._local.all_to_all(out, axes, split, concat)
        operand = self._cut.found.outputs[0]
        assert operand is not None
        return back, self._choice.home(operand, self._cut)

    def _exchanged(self, index: int, label: str, heads_axis: int, rows_axis: int) -> str:
        """An operand with all tokens and this rank's part of the heads."""
        assert isinstance(self._rows, Split)
        operand = self._cut.found.inputs[index]
        assert operand is not None
        cut = replace(self._cut, layouts={**self._cut.layouts, label: Split(self._rows.axes)})
        value = self._values.name(self._op.inputs[index], Sharding(cut.layout(operand)))
        return self._local.all_to_all(value, self._rows.axes, heads_axis, rows_axis)

    def _picked(self, index: int, heads_axis: int) -> str:
        """Keys or values of all tokens, and of the one head that this rank's query heads read."""
        assert isinstance(self._rows, Split)
        value = self._values.name(
            self._op.inputs[index], self._choice.wanted(self._op, index, self._cut)
        )
        ranks, held = self._values.mesh.axis_size(self._rows.axes), self._held("g")
        which = Constant.of(np.arange(ranks) * held // ranks)
        key = ("group", self._rows.axes, held)
        table = self._local.table(key, "own_group", which, Sharding((Split(self._rows.axes),)))
        return self._local.pick(value, heads_axis, table, 1)
