"""How many axes values have, as far as a model of an old opset tells without inference."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

_SAME_RANK = (
    "Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Conv ConvTranspose Div "
    "Dropout Elu Equal Exp Floor GlobalAveragePool GlobalLpPool GlobalMaxPool Greater "
    "HardSigmoid Hardmax Identity InstanceNormalization LRN LeakyRelu Less Log LogSoftmax "
    "LpNormalization LpPool Max MaxPool Mean Min Mul Neg Not Or PRelu Pad Pow Reciprocal Relu "
    "Selu Sigmoid Slice Softmax Softplus Softsign Split Sqrt Sub Sum Tanh Tile Transpose "
    "Upsample Xor"
)
_OF_FIRST = frozenset(_SAME_RANK.split())
"""Ops whose outputs have as many axes as their first input."""


def find_ranks(graph: GraphProto) -> dict[str, int]:
    """The ranks that are stated, or follow from nodes in the order in which they stand."""
    found = {t.name: len(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            found.setdefault(value.name, len(value.type.tensor_type.shape.dim))
    for node in graph.node:
        rank = _rank(node, found)
        for name in node.output:
            if rank is not None and name:
                found.setdefault(name, rank)
    return found


def _rank(node: NodeProto, known: dict[str, int]) -> int | None:
    if node.op_type in _OF_FIRST and node.input:
        return known.get(node.input[0])
    if node.op_type in ("Flatten", "Gemm"):
        return 2
    for attribute in node.attribute:
        if node.op_type == "Reshape" and attribute.name == "shape":
            return len(attribute.ints)
        if node.op_type == "Constant" and attribute.name == "value":
            return len(attribute.t.dims)
    return None
