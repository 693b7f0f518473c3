"""How much arithmetic an op is, from its shapes alone."""

from __future__ import annotations

import math

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op

_MOVES = frozenset(
    {
        "Cast",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)


def flops(graph: Graph, op: Op) -> float:
    """Arithmetic operations of a bound op, a multiply-add counted as two.

    Ops that only move data count 0, and ops not known here one per element they make.
    """
    made = sum(math.prod(_sizes(graph, v)) for v in op.outputs)
    if op.op_type in ("Attention", "FlashAttention"):
        return _attention(graph, op) or float(made)
    if op.domain == GE_DOMAIN:
        return float(made)
    if op.domain not in ("", "ai.onnx") or op.op_type in _MOVES:
        return 0.0 if op.op_type in _MOVES else float(made)
    if op.op_type in ("MatMul", "MatMulInteger", "QLinearMatMul"):
        return 2.0 * made * _last(graph, op.input(0))
    if op.op_type == "Gemm":
        rows = _sizes(graph, op.input(0))
        return 2.0 * made * (rows[0] if op.attr("transA") else rows[-1]) if rows else float(made)
    if op.op_type in ("Conv", "ConvInteger", "QLinearConv"):
        kernel = op.input(3 if op.op_type == "QLinearConv" else 1)
        return 2.0 * made * math.prod(_sizes(graph, kernel)[1:])
    if op.op_type == "ConvTranspose":
        return (
            2.0 * math.prod(_sizes(graph, op.input(0))) * math.prod(_sizes(graph, op.input(1))[1:])
        )
    return float(max(made, *(math.prod(_sizes(graph, v)) for v in op.inputs if v), 0))


def _attention(graph: Graph, op: Op) -> float:
    """Both products of an attention: scores over all keys, and values."""
    query, key, value = (_sizes(graph, op.input(i)) for i in range(3))
    if len(query) != 4 or len(key) != 4 or len(value) != 4:
        return 0.0
    keys = key[1] if op.attr("layout") == "BSND" else key[2]
    return 2.0 * math.prod(query[:3]) * keys * (query[3] + value[3])


def _sizes(graph: Graph, value: str) -> tuple[int, ...]:
    found = graph.tensor(value) if value else None
    return found.sizes if found is not None and found.is_static else ()


def _last(graph: Graph, value: str) -> int:
    sizes = _sizes(graph, value)
    return sizes[-1] if sizes else 1
