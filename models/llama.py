"""LLaMA (Touvron et al. 2023): rotary embedding, RMSNorm, gated MLP, grouped KV heads."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.types import DType
from gecompiler.models import blocks
from gecompiler.models.builder import Builder
from gecompiler.models.cache import Tokens, with_past
from gecompiler.models.model_spec import ModelSpec


def build_llama(b: Builder, spec: ModelSpec, tokens: Tokens) -> str:
    """Adds the whole model and returns the logits (batch, tokens, vocabulary)."""
    with b.scope("model"):
        with b.scope("embed_tokens"):
            table = b.weight("weight", (spec.vocabulary, spec.hidden))
            x = b.gather(table, tokens.input_ids)
        keys = b.unsqueeze(tokens.keys, 0, 1, 2)
        seen = blocks.causal(b, tokens.queries, keys)
        real = blocks.padding(b, tokens.attention_mask, tokens.input_ids, keys)
        bias = blocks.mask_bias(b, b.binary("And", seen, real))
        cos, sin = _rotary_tables(b, spec, tokens.queries)
        for i in range(spec.layers):
            with b.scope(f"layers.{i}"):
                x = _layer(b, spec, tokens, i, x, bias, cos, sin)
        x = blocks.rms_norm(b, x, "norm", spec.norm_epsilon)
    with b.scope("lm_head"):
        return b.matmul(x, b.weight("weight", (spec.hidden, spec.vocabulary)), "logits")


def _rotary_tables(b: Builder, spec: ModelSpec, queries: str) -> tuple[str, str]:
    """Cosine and sine (1, 1, tokens, width) of each position's angles."""
    half = np.arange(0, spec.width, 2, dtype=np.float32) / spec.width
    frequencies = (1.0 / np.float64(spec.rope_theta) ** half).astype(np.float32)
    with b.scope("rotary_emb"):
        place = b.cast(b.unsqueeze(queries, 0, 2), DType.F32)
        angle = b.binary("Mul", place, b.constant(frequencies))
        both = b.concat([angle, angle], 2)
        cos, sin = (b.cast(b.unary(kind, both), b.dtype) for kind in ("Cos", "Sin"))
        return b.unsqueeze(cos, 1), b.unsqueeze(sin, 1)


def _layer(
    b: Builder, spec: ModelSpec, tokens: Tokens, i: int, x: str, bias: str, cos: str, sin: str
) -> str:
    y = blocks.rms_norm(b, x, "input_layernorm", spec.norm_epsilon)
    with b.scope("self_attn"):
        q = blocks.linear(b, y, "q_proj", spec.heads * spec.width)
        q = blocks.split_heads(b, q, spec.heads, spec.width)
        k = blocks.linear(b, y, "k_proj", spec.groups * spec.width)
        k = blocks.split_heads(b, k, spec.groups, spec.width)
        v = blocks.linear(b, y, "v_proj", spec.groups * spec.width)
        v = blocks.split_heads(b, v, spec.groups, spec.width)
        q, k = blocks.rotary(b, q, cos, sin), blocks.rotary(b, k, cos, sin)
        k, v = with_past(b, tokens, i, k, v)
        repeats = spec.heads // spec.groups
        k, v = blocks.repeat_heads(b, k, repeats), blocks.repeat_heads(b, v, repeats)
        mixed = blocks.merge_heads(b, blocks.attention(b, q, k, v, bias))
        out = blocks.linear(b, mixed, "o_proj", spec.hidden)
    x = b.binary("Add", x, out)
    y = blocks.rms_norm(b, x, "post_attention_layernorm", spec.norm_epsilon)
    with b.scope("mlp"):
        out = blocks.swiglu(b, y, spec.intermediate, spec.hidden)
    return b.binary("Add", x, out)
