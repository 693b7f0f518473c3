"""Attention on tokens that are cut: keys and values go round, from rank to rank.

Each rank computes its queries against the keys it has while these travel on to the next; after
as many steps as ranks it has seen all. What the steps give is put together by their log-sum-exp
(Ring Attention, Liu et al. 2023; see `attention_parts`).

Causal ranks skip, by the window, what lies behind their rows: no work, but the time of the ring.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gecompiler.ir.collective_ops import RECV, SEND
from gecompiler.ir.constants import Constant
from gecompiler.ir.op import GE_DOMAIN, Attr, Op, OpInfo
from gecompiler.ir.parallel import Sharding, Split
from gecompiler.ir.parallel.layout import is_exact
from gecompiler.ir.types import DType
from gecompiler.passes.parallel.attention_parts import LOWEST, AttentionParts
from gecompiler.passes.parallel.label_choice import Cut, LabelChoice
from gecompiler.passes.parallel.local_values import LocalValues


class RingAttention(AttentionParts):
    """One attention whose queries, keys and values are cut by tokens."""

    def __init__(self, values: LocalValues, choice: LabelChoice, op: Op, cut: Cut) -> None:
        super().__init__(values, choice, op, cut)
        self.offsets: dict[str, tuple[int, ...]] = {}
        """By attention, where its rows begin among the keys, for each place in the ring."""

    def _refusal(self, rows: Split) -> str:
        sizes, mesh = self._cut.found.sizes, self._values.mesh
        if len(self._op.outputs) > 1 or self._op.input(4):
            return "keys are gathered: log-sum-exp or sinks do not go round"
        if not all(is_exact(Split(rows.axes), sizes.get(k, 1), mesh) for k in ("s", "t")):
            ranks = mesh.axis_size(rows.axes)
            return f"keys are gathered: {sizes.get('s', 1)} tokens for {ranks} ranks"
        return ""

    def run(self) -> tuple[str, Sharding]:
        """Emits the ring; the output's name and how it lies."""
        assert isinstance(self._rows, Split)
        self._axes = self._rows.axes
        self._ranks = self._values.mesh.axis_size(self._axes)
        query = self._values.name(self._op.inputs[0], self._choice.wanted(self._op, 0, self._cut))
        moving = [self._own(1), self._own(2)]
        values = moving[1]
        parts: list[tuple[str, str]] = []
        for step in range(self._ranks):
            onwards = step + 1 < self._ranks
            following = [self._pass_on(v, step) for v in moving] if onwards else moving
            parts.append(self._step(step, [query, *moving]))
            moving = following
        out = self._joined(parts, values)
        operand = self._cut.found.outputs[0]
        assert operand is not None
        return out, self._choice.home(operand, self._cut)

    def _own(self, index: int) -> str:
        """Keys or values of the rank's own tokens."""
        operand = self._cut.found.inputs[index]
        assert operand is not None
        cut = replace(self._cut, layouts={**self._cut.layouts, "t": Split(self._axes)})
        return self._values.name(self._op.inputs[index], Sharding(cut.layout(operand)))

    def _pass_on(self, value: str, step: int) -> str:
        """Sends the value to the next rank, and gets that of the one before."""
        graph, type_ = self._local.graph, self._local.graph.tensor(value)
        assert type_ is not None
        tag = self._local.next_tag()
        shared: dict[str, Attr] = {
            "communicator": self._axes,
            "group_size": self._ranks,
            "tag": tag,
        }
        info = OpInfo(scope=self._op.info.scope, phase=self._local.phase)
        name = graph.fresh(f"{self._op.name}_send{step}")
        send = Op(name, SEND, (value,), (), {**shared, "peer": 1}, GE_DOMAIN, info)
        graph.add_op(send)
        attrs: dict[str, Attr] = {
            **shared,
            "peer": -1,
            "dtype": type_.dtype.code,
            "shape": type_.sizes,
        }
        return graph.emit(
            RECV,
            [],
            type_,
            attrs=attrs,
            domain=GE_DOMAIN,
            info=info,
            stem=f"{self._op.name}_recv{step}",
        )

    def _step(self, step: int, inputs: list[str]) -> tuple[str, str]:
        """The output and the log-sum-exp of the queries against what the rank has now."""
        op, sizes = self._op, self._cut.found.sizes
        rows_axis = 1 if self._attention.reads_rows_first else 2
        rows, keys = (self._local.shape(inputs[i])[rows_axis] for i in (0, 1))
        if op.input(3):
            inputs = [*inputs, self._mask(step, keys)]
        base = self._attention.offset(sizes.get("s", 1), sizes.get("t", 1))
        offsets = tuple(
            base + place * rows - (place - step) % self._ranks * keys
            for place in range(self._ranks)
        )
        name = self._local.graph.fresh(f"{op.name}_step{step}")
        made = replace(self._attention, row_offset=offsets[0])
        outputs = self._emit_part(name, inputs, made)
        if (self._attention.window_left, self._attention.window_right) != (-1, -1):
            self.offsets[name] = offsets
        return outputs

    def _mask(self, step: int, keys: int) -> str:
        """The columns of the mask that belong to the keys the rank has now."""
        operand = self._cut.found.inputs[3]
        assert operand is not None
        mask = self._values.name(self._op.inputs[3], Sharding(self._cut.layout(operand)))
        shape = self._local.shape(mask)
        if not shape or shape[-1] == 1:
            return mask
        places = np.arange(self._ranks)
        starts = (places - step) % self._ranks * keys
        columns = Constant.of((starts[:, None] + np.arange(keys)).reshape(-1))
        key = ("ring", self._axes, keys, step)
        table = self._local.table(key, f"keys{step}", columns, Sharding((Split(self._axes),)))
        return self._local.pick(mask, len(shape) - 1, table, keys)

    # ------------------------------------------------------------ putting together

    def _joined(self, parts: list[tuple[str, str]], values: str) -> str:
        """The weighted mean of the steps' outputs; rows without keys as the op has them."""
        outs, scores = [o for o, _ in parts], [lse for _, lse in parts]
        highest = self._emit("Max", [*scores, self._number(LOWEST, scores[0])], scores[0])
        weights = [self._weight(lse, highest) for lse in scores]
        total = self._summed(weights)
        weighted = [
            self._emit("Mul", [self._wide(out, lse), self._spread(w)], self._wide(out, lse))
            for out, lse, w in zip(outs, scores, weights, strict=True)
        ]
        over = self._spread(total)
        mean = self._emit("Div", [self._summed(weighted), over], weighted[0])
        if self._attention.masked_row != "nan":
            empty = self._emit_as(DType.BOOL, "Equal", [over, self._number(0.0, over)], over)
            mean = self._emit("Where", [empty, self._fallback(values, over), mean], mean)
        narrow = self._local.graph.tensor(outs[0])
        assert narrow is not None
        return self._cast(mean, narrow.dtype)

    def _weight(self, score: str, highest: str) -> str:
        return self._emit("Exp", [self._emit("Sub", [score, highest], score)], score)

    def _fallback(self, values: str, like: str) -> str:
        """What a row without keys gives: 0, or the mean of all values."""
        if self._attention.masked_row == "zero":
            return self._number(0.0, like)
        rows_axis = 1 if self._attention.reads_rows_first else 2
        mean = self._local.along("ReduceMean", self._wide(values, like), rows_axis)
        return self._each_head(self._local.reduce(mean, self._axes, "mean"), like)

    def _summed(self, values: list[str]) -> str:
        return self._emit("Sum", values, values[0])
