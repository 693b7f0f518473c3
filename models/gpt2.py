"""GPT-2 (Radford et al. 2019): learned positions, one packed QKV projection, GELU by tanh.

Its projections are ``Conv1D`` modules, which exporters write as Gemm over (batch * tokens, n).
"""

from __future__ import annotations

from gecompiler.ir.dims import Dim
from gecompiler.ir.types import DType
from gecompiler.models import blocks
from gecompiler.models.builder import Builder
from gecompiler.models.cache import Tokens, with_past
from gecompiler.models.model_spec import ModelSpec


def build_gpt2(b: Builder, spec: ModelSpec, tokens: Tokens) -> str:
    """Adds the whole model and returns the logits (batch, tokens, vocabulary)."""
    with b.scope("transformer"):
        with b.scope("wte"):
            table = b.weight("weight", (spec.vocabulary, spec.hidden))
            x = b.gather(table, tokens.input_ids)
        with b.scope("wpe"):
            places = b.weight("weight", (spec.max_positions, spec.hidden))
            y = b.gather(places, b.unsqueeze(tokens.queries, 0))
        x = b.binary("Add", x, y)
        keys = b.unsqueeze(tokens.keys, 0, 1, 2)
        seen = blocks.causal(b, tokens.queries, keys)
        real = blocks.padding(b, tokens.attention_mask, tokens.input_ids, keys)
        bias = blocks.mask_bias(b, b.binary("And", seen, real))
        leading = _leading_sizes(b, tokens.input_ids)
        for i in range(spec.layers):
            with b.scope(f"h.{i}"):
                x = _layer(b, spec, tokens, i, x, bias, leading)
        x = blocks.layer_norm(b, x, "ln_f", spec.norm_epsilon)
    with b.scope("lm_head"):
        return b.matmul(x, b.weight("weight", (spec.hidden, spec.vocabulary)), "logits")


def _leading_sizes(b: Builder, x: str) -> str:
    """Batch and tokens as an int64 vector."""
    batch, tokens = b.shape(x)
    if isinstance(batch, int) and isinstance(tokens, int):
        return b.ints(batch, tokens)
    return b.op("Shape", [x], DType.I64, (2,), {"start": 0, "end": 2})


def _conv1d(b: Builder, flat: str, module: str, out: int, leading: str, tokens: Dim) -> str:
    """A projection of (rows, n) with bias, cut back to (batch, tokens, out)."""
    rows, width = b.shape(flat)
    assert isinstance(width, int)
    with b.scope(module):
        inputs = [flat, b.weight("weight", (width, out)), b.weight("bias", (out,), "bias")]
        attrs = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        y = b.op("Gemm", inputs, b.type(flat).dtype, (rows, out), attrs)
        known = b.graph.constant(leading)
        if known is not None:
            target = b.ints(*(int(size) for size in known.array()), out)
        else:
            target = b.concat([leading, b.ints(out)], 0)
        return b.reshape(y, target, (_quotient(rows, tokens), tokens, out))


def _flat(b: Builder, x: str) -> str:
    batch, tokens, width = b.shape(x)
    assert isinstance(width, int)
    return b.reshape(x, b.ints(-1, width), (batch * tokens, width))


def _quotient(rows: Dim, tokens: Dim) -> Dim:
    return rows // tokens if tokens != 0 else 0


def _layer(
    b: Builder, spec: ModelSpec, tokens: Tokens, i: int, x: str, bias: str, leading: str
) -> str:
    length = b.shape(x)[1]
    y = _flat(b, blocks.layer_norm(b, x, "ln_1", spec.norm_epsilon))
    with b.scope("attn"):
        packed = _conv1d(b, y, "c_attn", 3 * spec.hidden, leading, length)
        parts = b.split(packed, 3)
        q, k, v = (blocks.split_heads(b, part, spec.heads, spec.width) for part in parts)
        k, v = with_past(b, tokens, i, k, v)
        back = b.transpose(blocks.attention(b, q, k, v, bias), 0, 2, 1, 3)
        rows = b.shape(y)[0]
        mixed = b.reshape(back, b.ints(-1, spec.hidden), (rows, spec.hidden))
        out = _conv1d(b, mixed, "c_proj", spec.hidden, leading, length)
    x = b.binary("Add", out, x)
    y = _flat(b, blocks.layer_norm(b, x, "ln_2", spec.norm_epsilon))
    with b.scope("mlp"):
        wide = _conv1d(b, y, "c_fc", spec.intermediate, leading, length)
        with b.scope("act"):
            active = blocks.gelu_tanh(b, wide)
        out = _conv1d(b, _flat(b, active), "c_proj", spec.hidden, leading, length)
    return b.binary("Add", x, out)
