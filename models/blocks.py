"""The layers that the models share, op by op as torch's exporter writes them out.

Shapes: ``x`` is (batch, tokens, hidden). Layers open a scope named as the module of the
original model is, so that ops are named and grouped as in a real export.
"""

from __future__ import annotations

import math

from gecompiler.ir.dims import Dim
from gecompiler.ir.types import DType
from gecompiler.models.builder import Builder


def linear(b: Builder, x: str, module: str, out: int, *, bias: bool = False) -> str:
    """``x W (+ c)`` with the weight stored as (in, out)."""
    width = b.shape(x)[-1]
    assert isinstance(width, int)
    with b.scope(module):
        y = b.matmul(x, b.weight("weight", (width, out)))
        return b.binary("Add", y, b.weight("bias", (out,), "bias")) if bias else y


def rms_norm(b: Builder, x: str, module: str, epsilon: float) -> str:
    """Root mean square normalisation in float32 (Zhang and Sennrich 2019)."""
    with b.scope(module):
        wide = b.cast(x, DType.F32)
        square = b.binary("Pow", wide, b.scalar(2.0, wide))
        attrs = {"keepdims": 1, "noop_with_empty_axes": 0}
        shape = (*b.shape(x)[:-1], 1)
        mean = b.op("ReduceMean", [square, b.ints(-1)], DType.F32, shape, attrs)
        root = b.unary("Sqrt", b.binary("Add", mean, b.scalar(epsilon, mean)))
        scaled = b.binary("Mul", wide, b.unary("Reciprocal", root))
        width = b.shape(x)[-1]
        assert isinstance(width, int)
        weight = b.weight("weight", (width,), "scale")
        return b.binary("Mul", weight, b.cast(scaled, b.dtype))


def layer_norm(b: Builder, x: str, module: str, epsilon: float) -> str:
    """LayerNormalization over the last dim."""
    width = b.shape(x)[-1]
    assert isinstance(width, int)
    with b.scope(module):
        inputs = [x, b.weight("weight", (width,), "scale"), b.weight("bias", (width,), "bias")]
        attrs = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
        return b.op("LayerNormalization", inputs, b.type(x).dtype, b.shape(x), attrs)


def split_heads(b: Builder, x: str, heads: int, width: int) -> str:
    """(batch, tokens, heads * width) to (batch, heads, tokens, width)."""
    batch, tokens = b.shape(x)[:2]
    cut = b.reshape(x, b.ints(0, 0, heads, width), (batch, tokens, heads, width))
    return b.transpose(cut, 0, 2, 1, 3)


def merge_heads(b: Builder, x: str) -> str:
    """(batch, heads, tokens, width) to (batch, tokens, heads * width)."""
    batch, heads, tokens, width = b.shape(x)
    hidden = heads * width
    assert isinstance(hidden, int)
    back = b.transpose(x, 0, 2, 1, 3)
    return b.reshape(back, b.ints(0, 0, hidden), (batch, tokens, hidden))


def repeat_heads(b: Builder, x: str, repeats: int) -> str:
    """Each KV head ``repeats`` times, for grouped queries."""
    if repeats == 1:
        return x
    batch, groups, tokens, width = b.shape(x)
    assert isinstance(groups, int)
    assert isinstance(width, int)
    wide = (batch, groups, repeats, tokens, width)
    target = b.ints(1, 1, repeats, 1, 1)
    copied = b.op("Expand", [b.unsqueeze(x, 2), target], b.type(x).dtype, wide)
    heads = groups * repeats
    return b.reshape(copied, b.ints(0, heads, -1, width), (batch, heads, tokens, width))


def rotary(b: Builder, x: str, cos: str, sin: str) -> str:
    """Rotary position embedding of (batch, heads, tokens, width), halves rotated (Su 2021)."""
    width = b.shape(x)[-1]
    assert isinstance(width, int)
    straight = b.binary("Mul", x, cos)
    first = b.slice_last(x, 0, width // 2)
    second = b.slice_last(x, width // 2, width)
    turned = b.concat([b.unary("Neg", second), first], 3)
    return b.binary("Add", straight, b.binary("Mul", turned, sin))


def attention(b: Builder, q: str, k: str, v: str, bias: str) -> str:
    """Scaled dot product attention as torch decomposes it.

    ``q`` (batch, heads, S, width), ``k`` and ``v`` (batch, heads, T, width), ``bias`` added to
    the scores. The scale is split evenly over Q and K, and rows of NaN become 0.
    """
    width = b.shape(q)[-1]
    assert isinstance(width, int)
    half = b.scalar(math.sqrt(width**-0.5), q)
    scaled_k = b.binary("Mul", b.transpose(k, 0, 1, 3, 2), half)
    scores = b.matmul(b.binary("Mul", q, half), scaled_k)
    weights = b.softmax(b.binary("Add", scores, bias))
    nan = b.op("IsNaN", [weights], DType.BOOL, b.shape(weights))
    guarded = b.where(nan, b.scalar(0.0, weights), weights)
    return b.matmul(guarded, v)


def swiglu(b: Builder, x: str, intermediate: int, hidden: int) -> str:
    """The gated MLP of LLaMA: ``down(silu(gate(x)) * up(x))`` (Shazeer 2020)."""
    gate = linear(b, x, "gate_proj", intermediate)
    with b.scope("act_fn"):
        active = b.binary("Mul", gate, b.unary("Sigmoid", gate))
    up = linear(b, x, "up_proj", intermediate)
    return linear(b, b.binary("Mul", active, up), "down_proj", hidden)


def gelu_tanh(b: Builder, x: str) -> str:
    """GELU by tanh, written out (Hendrycks and Gimpel 2016)."""
    half = b.binary("Mul", x, b.scalar(0.5, x))
    cube = b.binary("Mul", b.binary("Pow", x, b.scalar(3.0, x)), b.scalar(0.044715, x))
    inner = b.binary("Mul", b.binary("Add", x, cube), b.scalar(math.sqrt(2 / math.pi), x))
    return b.binary("Mul", half, b.binary("Add", b.unary("Tanh", inner), b.scalar(1.0, inner)))


def padding(b: Builder, attention_mask: str, input_ids: str, keys: str) -> str:
    """Which keys are no padding, (batch, 1, 1, T) boolean.

    ``keys`` (1, 1, 1, T) numbers the keys. Written with GatherND over broadcast indices, which
    is how torch exports the indexing of a 2D mask by batch and key.
    """
    batch, length = b.shape(input_ids)[0], b.shape(keys)[3]
    real = b.cast(attention_mask, DType.BOOL)
    rows = b.unsqueeze(b.range(b.size(input_ids, 0), batch), 1, 2, 3)
    full = (batch, 1, 1, length)
    target = b.op("Shape", [b.binary("Max", rows, keys)], DType.I64, (4,))
    pairs = [
        b.unsqueeze(b.op("Expand", [index, target], DType.I64, full), -1) for index in (rows, keys)
    ]
    return b.op("GatherND", [real, b.concat(pairs, 4)], DType.BOOL, full, {"batch_dims": 0})


def mask_bias(b: Builder, allowed: str) -> str:
    """0 where attention is allowed, else the lowest finite number of the element type."""
    lowest = {DType.F16: -65504.0, DType.F32: -3.4028234663852886e38}
    low = b.constant(lowest.get(b.dtype, -3.3895313892515355e38), b.dtype)
    return b.where(allowed, b.constant(0.0, b.dtype), low)


def causal(b: Builder, queries: str, keys: str) -> str:
    """Which keys lie at or before each query: (S,) against (T,) gives (1, 1, S, T) boolean."""
    return b.binary("LessOrEqual", keys, b.unsqueeze(queries, 0, 1, 3), DType.BOOL)


def positions(b: Builder, source: str, axis: int, count: Dim) -> str:
    """0, 1, ... below the size of an axis of ``source``."""
    return b.range(b.size(source, axis), count)
