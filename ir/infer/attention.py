"""Shapes of attention: ai.onnx Attention (opset 23 on) and the product's FlashAttention."""

from __future__ import annotations

from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.errors import GraphError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes
from gecompiler.ir.types import Shape


def attention(node: Node) -> Shapes:
    """Output, present key and value, and the scores.

    Inputs are all (B, heads, S, D), or all (B, S, heads*D) with the head counts as attributes.
    """
    count = len(node.op.outputs)
    q, k, v = (_heads_first(node, i) for i in range(3))
    if q is None or k is None or v is None:
        rank = node.rank(0)
        return ((None,) * rank if rank else None, *((None,) * 4 for _ in range(count - 1)))
    batch = node.same(node.same(q[0], k[0], "batch sizes"), v[0], "batch sizes")
    node.same(q[3], k[3], "head sizes of Q and K")
    keys = node.same(k[2], v[2], "lengths of K and V")
    kv_heads = node.same(k[1], v[1], "heads of K and V")
    if isinstance(q[1], int) and isinstance(kv_heads, int) and kv_heads and q[1] % kv_heads:
        node.fail(f"{q[1]} query heads are no multiple of {kv_heads} KV heads")
    total = _with_past(node, keys)
    output: PartialShape = (batch, q[1], q[2], v[3])
    if node.rank(0) == 3:
        output = (batch, q[2], q[1] * v[3])
    present_k: PartialShape = (batch, kv_heads, total, k[3])
    present_v: PartialShape = (batch, kv_heads, total, v[3])
    return (output, present_k, present_v, (batch, q[1], q[2], total))[:count]


def _heads_first(node: Node, index: int) -> Shape | None:
    shape = node.shape(index)
    if shape is None or len(shape) == 4:
        return shape
    name = "q_num_heads" if index == 0 else "kv_num_heads"
    heads = node.op.attrs.get(name)
    if len(shape) != 3 or not isinstance(heads, int) or heads < 1:
        node.fail(f"Attention needs inputs of rank 4, or of rank 3 with {name}")
    batch, length, hidden = shape
    if isinstance(hidden, int) and hidden % heads:
        node.fail(f"{hidden} cannot be divided into {heads} heads")
    return (batch, heads, length, floordiv(hidden, heads))


def _with_past(node: Node, keys: Dim | None) -> Dim | None:
    if not node.has(4):
        return keys
    past = node.shape(4)
    if past is None or keys is None:
        return None
    if len(past) != 4:
        node.fail("past_key needs rank 4")
    return past[2] + keys


def flash_attention(node: Node) -> Shapes:
    """(B, H, S, Dv) of Q (B, H, S, D), K (B, G, T, D), V (B, G, T, Dv); B of K and V may be 1.

    Sequence and heads change places as the op's layout says.
    """
    try:
        spec = FlashAttention.of(node.op)
    except GraphError as error:
        node.fail(error.message)
    q, k, v = node.shape(0), node.shape(1), node.shape(2)
    if q is None or k is None or v is None:
        return ((None,) * 4,)
    if not len(q) == len(k) == len(v) == 4:
        node.fail("FlashAttention needs Q, K and V of rank 4")
    q, k, v = spec.operand(q), spec.operand(k), spec.operand(v)
    heads = node.same(q[1], spec.q_heads, "heads of Q and q_heads")
    for shape, what in ((k, "K"), (v, "V")):
        node.same(shape[1], spec.kv_heads, f"heads of {what} and kv_heads")
        node.broadcast_dims(q[0], shape[0])
    node.same(q[3], k[3], "head sizes of Q and K")
    keys = node.same(k[2], v[2], "lengths of K and V")
    mask = node.shape(3)
    if mask is not None and keys is not None and heads is not None:
        if len(mask) > 4:
            node.fail("the mask of FlashAttention has at most rank 4")
        node.broadcast([(q[0], heads, q[2], keys), mask])
    sinks = node.shape(4)
    if sinks is not None:
        if len(sinks) != 1:
            node.fail("the sinks of FlashAttention have rank 1")
        node.same(sinks[0], heads, "the number of sinks and of heads")
    return (spec.result((q[0], heads, q[2], v[3])), (q[0], heads, q[2]))[: len(node.op.outputs)]


def flex_attention(node: Node) -> Shapes:
    """(B, H, S, Dv), as Attention; the bodies change scores, not shapes."""
    q, v = node.shape(0), node.shape(2)
    if q is None or v is None or len(q) != 4 or len(v) != 4:
        return ((None,) * 4,)
    return ((*q[:3], v[3]),)


def linear_attention(node: Node) -> Shapes:
    """(B, T, H*Dv) and state (B, G, Dk, Dv) of packed Q (B, T, H*Dk), K and V (B, T, G*D)."""
    count = len(node.op.outputs)
    heads, groups = node.op.attrs.get("q_num_heads"), node.op.attrs.get("kv_num_heads")
    q, k, v = node.shape(0), node.shape(1), node.shape(2)
    if not isinstance(heads, int) or not isinstance(groups, int) or groups < 1:
        node.fail("LinearAttention needs q_num_heads and kv_num_heads")
    if q is None or k is None or v is None:
        return ((None,) * 3, (None,) * 4)[:count]
    if not len(q) == len(k) == len(v) == 3:
        node.fail("LinearAttention needs Q, K and V of rank 3")
    key, value = floordiv(k[2], groups), floordiv(v[2], groups)
    return ((q[0], q[1], value * heads), (q[0], groups, key, value))[:count]


def causal_conv(node: Node) -> Shapes:
    """Output like the input (B, C, L); state (B, C, k - 1) with weights (C, 1, k)."""
    x, w = node.shape(0), node.shape(1)
    state: PartialShape = (None,) * 3
    if x is not None and w is not None and len(x) == len(w) == 3:
        state = (x[0], node.same(x[1], w[0], "channels"), w[2] - 1)
    return (x, state)[: len(node.op.outputs)]


RULES: dict[str, Rule] = {
    "Attention": attention,
    "CausalConvWithState": causal_conv,
    "LinearAttention": linear_attention,
}

PREVIEW_RULES: dict[str, Rule] = {"FlexAttention": flex_attention}
"""Rules of the domain ai.onnx.preview."""

OWN_RULES: dict[str, Rule] = {"FlashAttention": flash_attention}
"""Rules of the product's own domain."""
