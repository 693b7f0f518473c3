"""What attention on a part of the keys needs, until the parts are put together.

What the parts give is put together by their log-sum-exp, as within one flash attention::

    O = sum_k exp(lse_k - m) O_k / sum_k exp(lse_k - m)        m = max_k lse_k

Source: FlashAttention (Dao et al. 2022, section 3.1), Ring Attention (Liu et al. 2023).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import OpInfo
from gecompiler.ir.parallel import Sharding
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.parallel.token_attention import TokenAttention

LOWEST = float(np.finfo(np.float32).min)
"""No score is below it, and it is finite: a row that no part has keys for weighs nothing."""


class AttentionParts(TokenAttention):
    """An attention that is made of parts, each with its log-sum-exp."""

    def _emit_part(self, name: str, inputs: list[str], made: FlashAttention) -> tuple[str, str]:
        """The output and the log-sum-exp (B, H, S) of local queries against local keys."""
        graph, attention = self._local.graph, self._attention
        heads_axis, rows_axis = (2, 1) if attention.reads_rows_first else (1, 2)
        shape = list(self._local.shape(inputs[0]))
        heads, groups = shape[heads_axis], self._local.shape(inputs[1])[heads_axis]
        lse_shape = (shape[0], heads, shape[rows_axis])
        shape[3] = self._local.shape(inputs[2])[3]
        if attention.reads_rows_first != attention.writes_rows_first:
            shape[1], shape[2] = shape[2], shape[1]
        made = replace(made, q_heads=heads, kv_heads=groups, align="top_left", masked_row="zero")
        whole = self._values.whole.tensor(self._op.outputs[0])
        assert whole is not None
        outputs = graph.fresh(f"{name}_out"), graph.fresh(f"{name}_lse")
        wide = DType.F64 if whole.dtype is DType.F64 else DType.F32
        local = self._op.with_(name=name, inputs=tuple(inputs), outputs=outputs, attrs=made.attrs())
        graph.add_op(local, [TensorType(whole.dtype, tuple(shape)), TensorType(wide, lse_shape)])
        return outputs

    def _each_head(self, mean: str, like: str) -> str:
        """A row for each KV head as a row for each query head, lying as the output ``like``."""
        heads_axis = 2 if self._attention.reads_rows_first else 1
        shape = self._local.shape(mean)
        groups, lanes = shape[heads_axis], shape[3]
        heads = self._local.shape(like)[2 if self._attention.writes_rows_first else 1]
        flat = self._local.reshape(mean, (shape[0], groups, 1, lanes))
        wanted = (shape[0], groups, max(heads // groups, 1), lanes)
        sizes = self._local.numbers(wanted, "sizes")
        each = self._local.emit("Expand", [flat, sizes], wanted, {}, like=flat, stem=f"{mean}_each")
        middle = (1, heads) if self._attention.writes_rows_first else (heads, 1)
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
