"""Element types of outputs that attributes decide."""

from __future__ import annotations

from collections.abc import Callable

from gecompiler.ir.block_ops import NORMS
from gecompiler.ir.collective_ops import RECV
from gecompiler.ir.constants import Constant
from gecompiler.ir.infer import training
from gecompiler.ir.infer.collectives import received_dtype
from gecompiler.ir.infer.node import Node
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.ir.types import DType

DTypeRule = Callable[[Node], "DType | None"]
"""The element type of the ruled outputs, None to leave it to the schema."""


def _coded(attribute: str, default: DType | None = None) -> DTypeRule:
    def rule(node: Node) -> DType | None:
        code = node.op.attrs.get(attribute)
        if not isinstance(code, int) or (code == 0 and default is None):
            return default
        try:
            return DType.from_code(code)
        except ValueError as error:
            node.fail(f"attribute {attribute!r}: {error}")

    return rule


def _coded_or_first(attribute: str) -> DTypeRule:
    coded = _coded(attribute)
    return lambda node: coded(node) or node.dtype(0)


def _first(node: Node) -> DType | None:
    return node.dtype(0)


def _constant(node: Node) -> DType | None:
    value = node.op.attrs.get("value")
    if isinstance(value, Constant):
        return value.type.dtype
    for kind, dtype in (("int", DType.I64), ("float", DType.F32), ("string", DType.STRING)):
        if f"value_{kind}" in node.op.attrs or f"value_{kind}s" in node.op.attrs:
            return dtype
    return None


def _filled(node: Node) -> DType | None:
    value = node.op.attrs.get("value")
    return value.type.dtype if isinstance(value, Constant) else DType.F32


def _quantized(node: Node) -> DType | None:
    return _coded("output_dtype")(node) or node.dtype(2) or DType.U8


def _dequantized(node: Node) -> DType | None:
    if node.version < 19:
        return DType.F32
    return _coded("output_dtype")(node) or node.dtype(1)


def _state(node: Node) -> DType | None:
    return node.dtype(3) or node.dtype(0)


FIRST_OUTPUT: dict[str, DTypeRule] = {
    "Bernoulli": _coded_or_first("dtype"),
    "BlackmanWindow": _coded("output_datatype", DType.F32),
    "Cast": _coded("to"),
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "DequantizeLinear": _dequantized,
    "EyeLike": _coded_or_first("dtype"),
    "LayerNormalization": _first,
    "HammingWindow": _coded("output_datatype", DType.F32),
    "HannWindow": _coded("output_datatype", DType.F32),
    "MelWeightMatrix": _coded("output_datatype", DType.F32),
    "Multinomial": _coded("dtype", DType.I32),
    "QuantizeLinear": _quantized,
    "RandomNormal": _coded("dtype", DType.F32),
    "RandomNormalLike": _coded_or_first("dtype"),
    "RandomUniform": _coded("dtype", DType.F32),
    "RandomUniformLike": _coded_or_first("dtype"),
    "SimplifiedLayerNormalization": lambda node: node.dtype(1) or node.dtype(0),
}
"""What decides the first output's element type."""


def _type_of(index: int) -> DTypeRule:
    return lambda node: node.dtype(index)


OWN_OUTPUT: dict[str, DTypeRule] = {
    **{f"{GE_DOMAIN}.{name}": _coded_or_first("output_type") for name in NORMS},
    **training.OWN_OUTPUT,
    f"{GE_DOMAIN}.{RECV}": received_dtype,
    "com.microsoft.DequantizeLinear": _type_of(1),
    "com.microsoft.EmbedLayerNormalization": _type_of(2),
    "com.microsoft.IsAllFinite": lambda node: DType.BOOL,
    "com.microsoft.MatMulInteger16": lambda node: DType.I32,
    "com.microsoft.MatMulIntegerToFloat": _type_of(2),
    "com.microsoft.QuantizeLinear": lambda node: node.dtype(2) or DType.U8,
}
"""The same for the product's own ops and onnxruntime's, by qualified name."""

OTHER_OUTPUTS: dict[str, DTypeRule] = {
    "LinearAttention": _state,
    "LayerNormalization": _coded("stash_type", DType.F32),
    **training.OTHER_OUTPUTS,
}
"""What decides the element type of the outputs after the first."""
