"""Which values every correct computation gives alike, bit for bit.

ONNX fixes a result where IEEE arithmetic rounds once (Add, Mul, Div, Sqrt), where elements only
move, and where numbers are compared, chosen, or whole. It leaves open the order in which a sum
is taken (MatMul, ReduceSum, normalisation, pooling) and the last digits of transcendental
functions; a compiler may therefore reassociate within those. It may also contract a sum of
products (``a * b + c * d``, as rotary embedding is) since hardware does it in one instruction.
Such values are *unsteady*, and so is everything computed from them in floating point. Unsteady
values are compared with a tolerance, all others bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto

MOVES = frozenset(
    (
        *("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat"),
        *("Split", "Expand", "Tile", "Gather", "GatherElements", "GatherND", "Pad", "Where"),
        *("Trilu", "ScatterND", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "Compress"),
        "Dropout",
    )
)
"""Ops that hand elements on as they are."""

ROUNDED_ONCE = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Relu"),
        *("Sqrt", "Max", "Min", "Clip", "PRelu", "Cast", "Mod", "ReduceMax", "ReduceMin"),
        *("Constant", "ConstantOfShape", "Range", "Shape", "Size", "ArgMax", "ArgMin", "TopK"),
        *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "IsNaN", "IsInf"),
        *("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        *("QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan", "CastLike", "NonZero"),
        *("OneHot", "MaxPool", "GlobalMaxPool"),
    )
)
"""Ops whose result ONNX fixes to the last bit."""

TAME = frozenset(
    (*MOVES, "Neg", "Abs", "Relu", "Floor", "Ceil", "Round", "Sign", "Clip", "Max", "Min")
)
"""Ops that make no number larger than their inputs are."""


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def is_steady(node: NodeProto, unsteady: set[str], products: set[str]) -> bool:
    """Whether a node's floats are fixed bit for bit, given the names that are not.

    ``products`` are the results of Mul so far.
    """
    if node.op_type not in MOVES and node.op_type not in ROUNDED_ONCE:
        return False
    if any(name in unsteady for name in node.input):
        return False
    if node.op_type in ("Add", "Sub") and all(name in products for name in node.input):
        return False
    return not any(_unsteady_in(body.node, set(unsteady), set(products)) for body in bodies(node))


def _unsteady_in(nodes: Iterable[NodeProto], unsteady: set[str], products: set[str]) -> set[str]:
    """``unsteady`` with the names that the nodes add to it, or an empty set if they add none."""
    before = len(unsteady)
    captured = False
    for node in nodes:
        captured |= any(name in unsteady for name in node.input)
        mark(node, unsteady, products)
    return unsteady if captured or len(unsteady) > before else set()


def mark(node: NodeProto, unsteady: set[str], products: set[str]) -> None:
    """Adds the node's outputs to the sets they belong to."""
    if not is_steady(node, unsteady, products):
        unsteady.update(node.output)
    if node.op_type == "Mul" or (node.op_type in MOVES and products.intersection(node.input)):
        products.update(node.output)


def unsteady_values(nodes: Iterable[NodeProto], functions: frozenset[str]) -> set[str]:
    """The unsteady values of a graph; calls of ``functions`` count as such."""
    unsteady: set[str] = set()
    products: set[str] = set()
    for node in nodes:
        mark(node, unsteady, products)
        if node.op_type in functions:
            unsteady.update(node.output)
    return unsteady
