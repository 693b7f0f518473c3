"""BERT (Devlin et al. 2018) with its masked-language head: learned positions, post-norm, GELU."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.dims import minimum
from gecompiler.ir.types import DType
from gecompiler.models import blocks
from gecompiler.models.builder import Builder
from gecompiler.models.cache import Tokens
from gecompiler.models.model_spec import ModelSpec


def build_bert(b: Builder, spec: ModelSpec, tokens: Tokens) -> str:
    """Adds the whole model and returns the logits (batch, tokens, vocabulary)."""
    with b.scope("bert"):
        x = _embeddings(b, spec, tokens)
        keys = b.unsqueeze(tokens.keys, 0, 1, 2)
        rows = b.unsqueeze(tokens.queries, 0, 1, 3)
        every = b.binary("GreaterOrEqual", rows, b.constant(0, DType.I64), DType.BOOL)
        real = blocks.padding(b, tokens.attention_mask, tokens.input_ids, keys)
        bias = blocks.mask_bias(b, b.binary("And", every, real))
        for i in range(spec.layers):
            with b.scope("encoder", f"layer.{i}"):
                x = _layer(b, spec, x, bias)
    with b.scope("cls", "predictions"):
        with b.scope("transform"):
            x = _gelu(b, blocks.linear(b, x, "dense", spec.hidden, bias=True))
            x = blocks.layer_norm(b, x, "LayerNorm", spec.norm_epsilon)
        with b.scope("decoder"):
            y = b.matmul(x, b.weight("weight", (spec.hidden, spec.vocabulary)))
            bias = b.weight("bias", (spec.vocabulary,), "bias")
            return b.op("Add", [y, bias], b.dtype, b.shape(y), output="logits")


def _embeddings(b: Builder, spec: ModelSpec, tokens: Tokens) -> str:
    with b.scope("embeddings"):
        with b.scope("word_embeddings"):
            table = b.weight("weight", (spec.vocabulary, spec.hidden))
            x = b.gather(table, tokens.input_ids)
        if spec.token_types:
            batch, length = b.shape(tokens.input_ids)
            types = b.input("token_type_ids", DType.I64, (batch, length))
            with b.scope("token_type_embeddings"):
                kinds = b.weight("weight", (spec.token_types, spec.hidden))
                y = b.gather(kinds, types)
            x = b.binary("Add", x, y)
        places = _position_ids(b, spec, tokens)
        with b.scope("position_embeddings"):
            y = b.gather(b.weight("weight", (spec.max_positions, spec.hidden)), places)
        x = b.binary("Add", x, y)
        return blocks.layer_norm(b, x, "LayerNorm", spec.norm_epsilon)


def _position_ids(b: Builder, spec: ModelSpec, tokens: Tokens) -> str:
    """The first positions of the model's buffer of all positions, (1, tokens)."""
    every = b.constant(np.arange(spec.max_positions, dtype=np.int64)[None, :])
    length = b.op("Shape", [tokens.attention_mask], DType.I64, (1,), {"start": 1, "end": 2})
    inputs = [every, b.ints(0), length, b.ints(1), b.ints(1)]
    count = minimum(b.shape(tokens.input_ids)[1], spec.max_positions)
    return b.op("Slice", inputs, DType.I64, (1, count))


def _gelu(b: Builder, x: str) -> str:
    return b.unary("Gelu", x, {"approximate": "none"})


def _layer(b: Builder, spec: ModelSpec, x: str, bias: str) -> str:
    with b.scope("attention"):
        with b.scope("self"):
            q, k, v = (
                blocks.split_heads(
                    b, blocks.linear(b, x, name, spec.hidden, bias=True), spec.heads, spec.width
                )
                for name in ("query", "key", "value")
            )
            mixed = blocks.merge_heads(b, blocks.attention(b, q, k, v, bias))
        with b.scope("output"):
            out = blocks.linear(b, mixed, "dense", spec.hidden, bias=True)
            x = blocks.layer_norm(b, b.binary("Add", out, x), "LayerNorm", spec.norm_epsilon)
    with b.scope("intermediate"):
        y = blocks.linear(b, x, "dense", spec.intermediate, bias=True)
        with b.scope("intermediate_act_fn"):
            y = _gelu(b, y)
    with b.scope("output"):
        out = blocks.linear(b, y, "dense", spec.hidden, bias=True)
        return blocks.layer_norm(b, b.binary("Add", out, x), "LayerNorm", spec.norm_epsilon)
