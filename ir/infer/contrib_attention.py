"""Shapes of onnxruntime's attention ops (domain ``com.microsoft``)."""

from __future__ import annotations

from gecompiler.ir.dim_bounds import largest
from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes


def multi_head(node: Node) -> Shapes:
    """(B, S, H*Dv), the presents (B, H, T, D), and the scores.

    Q (B, S, H*D) with K and V (B, T, H*D) or (B, H, T, D); or Q and K packed along an axis of
    their own: (B, S, H, 3, D), (B, T, H, 2, D).
    """
    return _multi_head(node, past=6)


def decoder_masked(node: Node) -> Shapes:
    """As `multi_head`; the cache stands one place earlier."""
    return _multi_head(node, past=5)


def _multi_head(node: Node, past: int) -> Shapes:
    heads, q, k, v = _heads(node, "num_heads"), node.shape(0), node.shape(1), node.shape(2)
    if q is None:
        return ((None,) * 3, *((None,) * 4,) * 3)[: len(node.op.outputs)]
    batch, rows = q[0], q[1]
    new: Dim | None = rows
    width: Dim | None
    value: Dim | None
    if len(q) == 5:
        width = value = q[4]
    else:
        width = value = floordiv(q[-1], heads)
        if k is not None:
            new = k[2] if len(k) == 4 else k[1]
        if v is not None:
            value = v[3] if len(v) == 4 else floordiv(v[-1], heads)
    shared = bool(node.op.attr("past_present_share_buffer", 0)) or node.has(past + 2)
    keys = _joined(node, past, new, shared=shared)
    columns = None if value is None else value * heads
    _biased(node, past - 1, batch, rows, None if shared else keys)
    present_k: PartialShape = (batch, heads, keys, width)
    present_v: PartialShape = (batch, heads, keys, value)
    scores: PartialShape = (batch, heads, rows, keys)
    output: PartialShape = (batch, rows, columns)
    return (output, present_k, present_v, scores)[: len(node.op.outputs)]


def _biased(node: Node, index: int, batch: Dim, rows: Dim | None, keys: Dim | None) -> None:
    """A bias on the scores has a row for each query and a column for each key."""
    shape = node.shape(index)
    if shape is not None and len(shape) == 4:
        if isinstance(shape[0], int) and shape[0] > 1:
            node.same(shape[0], batch, "batch entries and those of the bias")
        node.same(shape[2], rows, "queries and rows of the bias")
        node.same(shape[3], keys, "keys and columns of the bias")


def _joined(node: Node, past: int, new: Dim | None, *, shared: bool) -> Dim | None:
    """The length of the cache behind the op."""
    given = node.shape(past)
    if not node.has(past):
        return new
    if given is None or len(given) != 4 or new is None:
        return None
    return given[2] if shared else given[2] + new


def attention(node: Node) -> Shapes:
    """(B, S, Ev) and present (2, B, H, T, D) of X (B, S, E) and weights (E, Eq + Ek + Ev)."""
    heads, x, w = _heads(node, "num_heads"), node.shape(0), node.shape(1)
    count = len(node.op.outputs)
    if x is None or len(x) != 3:
        return ((None,) * 3, (None,) * 5)[:count]
    sizes = node.op.attr("qkv_hidden_sizes", None)
    columns: Dim | None = None
    if isinstance(sizes, tuple) and len(sizes) == 3:
        columns = int(sizes[2])
    elif w is not None and len(w) == 2:
        columns = floordiv(w[1], 3)
    past, keys = node.shape(4), x[1]
    if past is not None and len(past) == 5:
        shared = node.op.attr("past_present_share_buffer", 0)
        keys = past[3] if shared else past[3] + x[1]
    _biased(node, 5, x[0], x[1], None if node.op.attr("past_present_share_buffer", 0) else keys)
    width = None if columns is None else floordiv(columns, heads)
    return ((*x[:2], columns), (2, x[0], heads, keys, width))[:count]


def grouped(node: Node) -> Shapes:
    """(B, S, H*D) and the presents (B, G, T, D); Q may be Q, K and V packed: (B, S, (H+2G)*D)."""
    heads, groups, q = _heads(node, "num_heads"), _heads(node, "kv_num_heads"), node.shape(0)
    if heads % groups:
        node.fail(f"{heads} query heads are no multiple of {groups} KV heads")
    count = len(node.op.outputs)
    if q is None or len(q) != 3:
        return ((None,) * 3, *((None,) * 4,) * 3)[:count]
    packed = not node.has(1)
    width = floordiv(q[2], heads + 2 * groups if packed else heads)
    keys: Dim | None = None
    past, bias = node.shape(3), node.shape(10)
    total = bias[3] if bias is not None and len(bias) == 4 else node.scalar(6)
    if not node.has(3):
        keys = q[1]
    elif past is not None and len(past) == 4:
        windowed = node.op.attr("sliding_window_cache", 0)
        keys = past[2] if windowed else _longer(past[2], total)
    _biased(node, 10, q[0], q[1], None if node.has(3) else q[1])
    present: PartialShape = (q[0], groups, keys, width)
    scores: PartialShape = (q[0], heads, q[1], None)
    return ((*q[:2], width * heads), present, present, scores)[:count]


def _longer(past: Dim, total: Dim | None) -> Dim | None:
    """The length of a cache that is either large enough for all keys or grows to hold them."""
    return None if total is None else largest(past, total)


def packed(node: Node) -> Shapes:
    """(tokens, H*Dv) of the tokens of all batch entries behind each other."""
    q, v = node.shape(0), node.shape(2)
    if q is None or len(q) not in (2, 4):
        return ((None, None),)
    if len(q) == 4:  # (tokens, H, 3, D)
        return ((q[0], q[1] * q[3]),)
    return ((q[0], None if v is None else v[-1]),)


def packed_attention(node: Node) -> Shapes:
    """(tokens, Ev) of (tokens, E) and weights (E, Eq + Ek + Ev)."""
    x, w, sizes = node.shape(0), node.shape(1), node.op.attr("qkv_hidden_sizes", None)
    columns: Dim | None = None if w is None or len(w) != 2 else floordiv(w[1], 3)
    if isinstance(sizes, tuple) and len(sizes) == 3:
        columns = int(sizes[2])
    return ((None if x is None else x[0], columns),)


def _heads(node: Node, name: str) -> int:
    found = node.op.attr(name, 0)
    if not isinstance(found, int) or found < 1:
        node.fail(f"{node.op.op_type} needs the attribute {name}")
    return found


RULES: dict[str, Rule] = {
    "Attention": attention,
    "DecoderMaskedMultiHeadAttention": decoder_masked,
    "GroupQueryAttention": grouped,
    "MultiHeadAttention": multi_head,
    "PackedAttention": packed_attention,
    "PackedMultiHeadAttention": packed,
}
