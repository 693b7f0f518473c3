"""Attention on tokens that are cut: keys and values go round, from rank to rank.

Each rank computes its queries against the keys it has while these travel on to the next; after
as many steps as ranks it has seen all. What the steps give is put together by their log-sum-exp,
as within one flash attention (Ring Attention, Liu et al. 2023)::

    O = sum_k exp(lse_k - m) O_k / sum_k exp(lse_k - m)        m = max_k lse_k

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
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.parallel.label_choice import Cut, LabelChoice
from gecompiler.passes.parallel.local_values import LocalValues
from gecompiler.passes.parallel.token_attention import TokenAttention

_LOWEST = -1e30
"""Below every score, and finite: a row that no step has keys for weighs nothing."""


class RingAttention(TokenAttention):
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
        op, graph, sizes = self._op, self._local.graph, self._cut.found.sizes
        heads_axis, rows_axis = (2, 1) if self._attention.reads_rows_first else (1, 2)
        shape = list(self._local.shape(inputs[0]))
        heads, groups = shape[heads_axis], self._local.shape(inputs[1])[heads_axis]
        rows, keys = shape[rows_axis], self._local.shape(inputs[1])[rows_axis]
        lse_shape = (shape[0], heads, rows)
        shape[3] = self._local.shape(inputs[2])[3]
        if self._attention.reads_rows_first != self._attention.writes_rows_first:
            shape[1], shape[2] = shape[2], shape[1]
        if op.input(3):
            inputs = [*inputs, self._mask(step, keys)]
        base = self._attention.offset(sizes.get("s", 1), sizes.get("t", 1))
        offsets = tuple(
            base + place * rows - (place - step) % self._ranks * keys
            for place in range(self._ranks)
        )
        made = replace(
            self._attention,
            q_heads=heads,
            kv_heads=groups,
            align="top_left",
            masked_row="zero",
            row_offset=offsets[0],
        )
        whole = self._values.whole.tensor(op.outputs[0])
        assert whole is not None
        name = graph.fresh(f"{op.name}_step{step}")
        outputs = graph.fresh(f"{name}_out"), graph.fresh(f"{name}_lse")
        wide = DType.F64 if whole.dtype is DType.F64 else DType.F32
        local = op.with_(name=name, inputs=tuple(inputs), outputs=outputs, attrs=made.attrs())
        graph.add_op(local, [TensorType(whole.dtype, tuple(shape)), TensorType(wide, lse_shape)])
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
        highest = self._emit("Max", [*scores, self._number(_LOWEST, scores[0])], scores[0])
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
        zero = self._number(0.0, like)
        if self._attention.masked_row == "zero":
            return zero
        rows_first = self._attention.reads_rows_first
        heads_axis, rows_axis = (2, 1) if rows_first else (1, 2)
        wide = self._wide(values, like)
        shape = list(self._local.shape(wide))
        shape[rows_axis] = 1
        mean = self._local.mean(wide, rows_axis, shape)
        mean = self._local.reduce(mean, self._axes, "mean")
        groups, lanes = shape[heads_axis], shape[3]
        held = self._cut.found.sizes.get("h", 1) // self._cut.found.sizes.get("g", 1)
        heads = self._local.shape(like)[2 if self._attention.writes_rows_first else 1]
        repeats = max(heads // groups, 1)
        assert repeats <= held
        flat = self._local.reshape(mean, (shape[0], groups, 1, lanes))
        each = self._local.emit(
            "Expand",
            [flat, self._local.numbers((shape[0], groups, repeats, lanes), "sizes")],
            (shape[0], groups, repeats, lanes),
            {},
            like=flat,
            stem=f"{values}_each",
        )
        rows_out = self._attention.writes_rows_first
        middle = (1, heads) if rows_out else (heads, 1)
        return self._local.reshape(each, (shape[0], *middle, lanes))

    def _spread(self, weight: str) -> str:
        """(B, H, S) as it goes with the output: a last dim of 1, rows first where these are."""
        batch, heads, rows = self._local.shape(weight)
        if not self._attention.writes_rows_first:
            return self._local.reshape(weight, (batch, heads, rows, 1))
        turned = self._local.emit(
            "Transpose",
            [weight],
            (batch, rows, heads),
            {"perm": (0, 2, 1)},
            like=weight,
            stem=f"{weight}_rows",
        )
        return self._local.reshape(turned, (batch, rows, heads, 1))

    def _summed(self, values: list[str]) -> str:
        return self._emit("Sum", values, values[0])

    def _number(self, number: float, like: str) -> str:
        type_ = self._local.graph.tensor(like)
        assert type_ is not None
        constant = Constant.of(np.asarray(number, type_.dtype.numpy), type_.dtype)
        return self._local.table(("number", number, type_.dtype), "n", constant, Sharding(()))

    def _wide(self, value: str, like: str) -> str:
        type_ = self._local.graph.tensor(like)
        assert type_ is not None
        return self._cast(value, type_.dtype)

    def _cast(self, value: str, dtype: DType) -> str:
        type_ = self._local.graph.tensor(value)
        assert type_ is not None
        if type_.dtype is dtype:
            return value
        return self._emit_as(dtype, "Cast", [value], value, to=dtype.code)

    def _emit(self, op_type: str, inputs: list[str], like: str) -> str:
        stem = f"{self._op.name}_{op_type.lower()}"
        return self._local.emit(op_type, inputs, self._local.shape(like), {}, like=like, stem=stem)

    def _emit_as(
        self, dtype: DType, op_type: str, inputs: list[str], like: str, **attrs: int
    ) -> str:
        graph = self._local.graph
        return graph.emit(
            op_type,
            inputs,
            TensorType(dtype, self._local.shape(like)),
            attrs=attrs,
            info=OpInfo(scope=self._op.info.scope, phase=self._local.phase),
            stem=f"{self._op.name}_{op_type.lower()}",
        )
