"""Shapes of onnxruntime's own ops, which models that it has optimised are made of.

They are those of ``ContribOperators.md`` of onnxruntime 1.32. Most have the domain
``com.microsoft``; ``SimplifiedLayerNormalization`` it writes in the domain of ONNX itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.infer import contrib_attention, matmul, window
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes
from gecompiler.ir.types import Shape


def like_first(node: Node) -> Shapes:
    """Every output like the first input."""
    return (node.shape(0),) * len(node.op.outputs)


def like_all(node: Node) -> Shapes:
    """The inputs broadcast together."""
    shapes = [node.shape(n) for n in range(len(node.op.inputs)) if node.has(n)]
    known = [s for s in shapes if s is not None]
    return (node.broadcast(known) if len(known) == len(shapes) and known else None,)


def quantized_binary(node: Node) -> Shapes:
    """A (with scale and zero point) and B (likewise), broadcast together."""
    a, b = node.shape(0), node.shape(3)
    return (None if a is None or b is None else node.broadcast([a, b]),)


def bias_act(node: Node) -> Shapes:
    """X, with the bias of its last axis added."""
    shape, bias = node.shape(0), node.shape(1)
    if shape and bias is not None and len(bias) == 1:
        node.same(shape[-1], bias[0], "the last axis and its bias")
    return (shape,)


def halved(node: Node) -> Shapes:
    """X with half of its last axis: one half gates the other."""
    shape = node.shape(0)
    return (None if not shape else (*shape[:-1], floordiv(shape[-1], 2)),)


def swiglu(node: Node) -> Shapes:
    """The gate's shape, or half of it where the gate holds both."""
    return (node.shape(0),) if node.has(1) else halved(node)


def skip_norm(node: Node) -> Shapes:
    """Y, mean, inverse deviation, and the sum that was normalised."""
    shape = node.shape(0)
    if shape is None:
        return (None,) * len(node.op.outputs)
    if node.op.input(2):
        scale = node.shape(2)
        if scale is not None and len(scale) == 1:
            node.same(shape[-1], scale[0], "the last axis and its scale")
    moments: PartialShape = (*shape[:-1], 1)
    return (shape, moments, moments, shape)[: len(node.op.outputs)]


def embed_norm(node: Node) -> Shapes:
    """(B, S, E) of ids (B, S) and tables (V, E); the number of words per batch entry; the sum."""
    ids, table = node.shape(0), node.shape(2)
    rows: Sequence[Dim | None] = (None, None) if ids is None or len(ids) != 2 else ids
    width = None if table is None or len(table) != 2 else table[1]
    whole: PartialShape = (*rows, width)
    return (whole, (rows[0],), whole)[: len(node.op.outputs)]


def relative_position_bias(node: Node) -> Shapes:
    """(1, H, S, T) from a table (buckets, H) and the two lengths."""
    table = node.shape(0)
    heads = None if table is None or len(table) != 2 else table[1]
    return ((1, heads, node.scalar(1), node.scalar(2)),)


def fused_matmul(node: Node) -> Shapes | None:
    """A matrix product, either operand transposed before."""
    a, b = node.shape(0), node.shape(1)
    if a is None or b is None:
        return (None,)
    a = _turned(a, node, "A")
    b = _turned(b, node, "B")
    return (matmul.product_shape(node, a, b),)


def _turned(shape: Shape, node: Node, side: str) -> Shape:
    """The operand as it is multiplied: batch dims to the front, rows and columns swapped."""
    if len(shape) < 2:
        return shape
    if node.op.attr(f"transBatch{side}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    if node.op.attr(f"trans{side}", 0):
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def packed_matmul(node: Node) -> Shapes:
    """A (..., K) by weights of K x N that are packed, N being an attribute."""
    shape, columns = node.shape(0), node.op.attr("N", None)
    if not shape or not isinstance(columns, int):
        return (None,)
    return ((*shape[:-1], columns),)


def quantized_matmul(node: Node) -> Shapes | None:
    """A by B whose scales and zero points come after."""
    a, b = node.shape(0), node.shape(1)
    return (None if a is None or b is None else matmul.product_shape(node, a, b),)


def channels_last_norm(node: Node) -> Shapes:
    """GroupNorm: like X; SkipGroupNorm: the sum as well."""
    return (node.shape(0),) * len(node.op.outputs)


_LIKE_FIRST = (
    *("BiasSoftmax", "Gelu", "QuickGelu", "RotaryEmbedding", "ScaledSiLU", "Inverse", "Trilu"),
    *("BiasAdd", "MoE", "QMoE", "GatedAdd", "GatedRMSNorm", "BranchwiseRMSNorm"),
    *("QuantizeLinear", "DequantizeLinear", "QLinearSigmoid", "QLinearLeakyRelu"),
    *("QLinearSoftmax", "LongformerAttention", "IsAllFinite"),
)

CONTRIB_DOMAIN = "com.microsoft"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_LIKE_FIRST, like_first),
    **dict.fromkeys(("FastGelu", "BiasGelu"), bias_act),
    "BiasSplitGelu": halved,
    "SwiGLU": swiglu,
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), skip_norm),
    **dict.fromkeys(("GroupNorm", "SkipGroupNorm"), channels_last_norm),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), quantized_binary),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), fused_matmul),
    **dict.fromkeys(("GemmFastGelu", "DynamicQuantizeMatMul"), quantized_matmul),
    **dict.fromkeys(("MatMulIntegerToFloat", "MatMulInteger16"), quantized_matmul),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4", "MatMulFpQ4"), packed_matmul),
    "EmbedLayerNormalization": embed_norm,
    "FusedConv": window.RULES["Conv"],
    "FusedGemm": matmul.RULES["Gemm"],
    "RelativePositionBias": relative_position_bias,
    **contrib_attention.RULES,
}
"""Rules of the domain ``com.microsoft``."""

ONNX_RULES: dict[str, Rule] = {"SimplifiedLayerNormalization": like_first}
"""Those onnxruntime puts into the domain of ONNX."""

_EARLIER = frozenset({"LayerNormalization"})
"""Ops of ONNX that onnxruntime has in every opset, though ONNX has them in later ones only."""


def is_contrib(domain: str, op_type: str) -> bool:
    """Whether an op that ONNX does not know in an opset is one of onnxruntime's."""
    if domain == CONTRIB_DOMAIN:
        return op_type in RULES
    return not domain and (op_type in ONNX_RULES or op_type in _EARLIER)
