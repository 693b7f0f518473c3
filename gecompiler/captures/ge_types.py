"""The operator library's type names and what they are in ours; which family each belongs to.

Types end in a version (``MatMulV3``, ``LayerNormV4``), and those whose attributes were made
constant in a ``D`` (``TransposeD``); `plain_type` takes both off where the table has no such
name. What is not here has no formula: training's backward ops, random masks, optimisers, and
changes between blocked layouts (``TransData``), which compiled models have none of.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import NamedTuple

from gecompiler.ir.op import GE_DOMAIN


class Kind(NamedTuple):
    """Our op for one of theirs."""

    op_type: str
    domain: str
    family: str


def _same(family: str, *names: str) -> dict[str, Kind]:
    return {name: Kind(name, "", family) for name in names}


def _named(family: str, domain: str = "", **names: str) -> dict[str, Kind]:
    return {theirs: Kind(ours, domain, family) for theirs, ours in names.items()}


KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        **_named("gemm", MatMul="MatMul", BatchMatMul="MatMul", Gemm="MatMul", Mm="MatMul"),
        **_named("gemm", Addmm="MatMul", Bmm="MatMul", MatMulCommon="MatMul"),
        **_named("convolution", Conv2D="Conv", Conv3D="Conv", Conv="Conv", DepthwiseConv2D="Conv"),
        **_named("attention", GE_DOMAIN, FlashAttentionScore="FlashAttention"),
        **_named("attention", GE_DOMAIN, PromptFlashAttention="FlashAttention"),
        **_named("attention", GE_DOMAIN, IncreFlashAttention="FlashAttention"),
        **_named("attention", GE_DOMAIN, FusedInferAttentionScore="FlashAttention"),
        **_named("attention", GE_DOMAIN, FlashAttention="FlashAttention"),
        **_named("rms norm", GE_DOMAIN, RmsNorm="RMSNorm", RMSNorm="RMSNorm"),
        **_named("rms norm", GE_DOMAIN, AddRmsNorm="AddRMSNorm", AddRMSNorm="AddRMSNorm"),
        **_named("rms norm", GE_DOMAIN, InplaceAddRmsNorm="AddRMSNorm"),
        **_named("rms norm", RMSNormalization="RMSNormalization"),
        **_named("layer norm", GE_DOMAIN, LayerNorm="LayerNorm", AddLayerNorm="AddLayerNorm"),
        **_named("layer norm", LayerNormalization="LayerNormalization"),
        **_named("softmax", Softmax="Softmax", LogSoftmax="LogSoftmax"),
        **_named("gated", GE_DOMAIN, SwiGlu="SiluMul", GeGlu="GeluMul", SiluMul="SiluMul"),
        **_named("gated", GE_DOMAIN, GeluMul="GeluMul", ReluMul="ReluMul", SigmoidMul="SigmoidMul"),
        **_named("rotary", GE_DOMAIN, RotaryMul="RotaryEmbedding", RopeMul="RotaryEmbedding"),
        **_named("rotary", GE_DOMAIN, RotaryPositionEmbedding="RotaryEmbedding"),
        **_named("rotary", GE_DOMAIN, InterleaveRope="RotaryEmbedding"),
        **_named("rotary", GE_DOMAIN, RotaryEmbedding="RotaryEmbedding"),
        **_same("elementwise", "Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater"),
        **_same("elementwise", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not", "Xor"),
        **_same("elementwise", "Abs", "Neg", "Relu", "Clip", "Cast", "Reciprocal", "Floor", "Ceil"),
        **_same("elementwise", "Round", "Where", "Exp", "Log", "Sqrt", "Pow", "Erf", "Tanh"),
        **_same("elementwise", "Sigmoid", "Sin", "Cos", "Softplus", "Elu", "HardSwish", "Mish"),
        **_same("elementwise", "LeakyRelu", "HardSigmoid", "Sign", "Mod", "QuickGelu", "Silu"),
        **_named("elementwise", Adds="Add", Axpy="Add", AddN="Sum", Muls="Mul", RealDiv="Div"),
        **_named("elementwise", Divs="Div", DivNoNan="Div", Maximum="Max", Minimum="Min"),
        **_named("elementwise", LogicalAnd="And", LogicalOr="Or", LogicalNot="Not"),
        **_named("elementwise", GreaterEqual="GreaterOrEqual", LessEqual="LessOrEqual"),
        **_named("elementwise", NotEqual="Equal", Select="Where", SelectV2="Where"),
        **_named("elementwise", MaskedFill="Where", Swish="Silu", ClipByValue="Clip"),
        **_named("elementwise", Pows="Pow", Square="Mul", Rsqrt="Reciprocal", Rec="Reciprocal"),
        **_named("elementwise", Gelu="Gelu", FastGelu="FastGelu", ReluGrad="Mul"),
        **_named("elementwise", AscendQuant="QuantizeLinear", QuantizeLinear="QuantizeLinear"),
        **_named("elementwise", AscendDequant="DequantizeLinear"),
        **_named("movement", TensorMove="Tile", ViewCopy="Tile", Identity="Tile", Copy="Tile"),
        **_named("movement", Concat="Concat", ConcatV2="Concat", Pack="Concat", Stack="Concat"),
        **_named("movement", Split="Split", SplitV="Split", Slice="Slice", StridedSlice="Slice"),
        **_named("movement", Pad="Pad", PadV3="Pad", BroadcastTo="Expand", Expand="Expand"),
        **_named("movement", Tile="Tile", Repeat="Tile"),
        **_same("transpose", "Transpose"),
        **_named("movement", AsStrided="Tile", Tril="Trilu", Triu="Trilu"),
        **_named("fill", ZerosLike="ConstantOfShape", OnesLike="ConstantOfShape"),
        **_named("fill", Fill="ConstantOfShape", Range="Range", Arange="Range"),
        **_named("gather", Gather="Gather", GatherV2="Gather", GatherV3="Gather"),
        **_named(
            "gather", Embedding="Gather", GatherElements="GatherElements", GatherNd="GatherND"
        ),
        **_named(
            "reduction", ReduceSum="ReduceSum", ReduceMean="ReduceMean", ReduceMax="ReduceMax"
        ),
        **_named("reduction", ReduceMin="ReduceMin", ReduceProd="ReduceProd", ArgMax="ArgMax"),
        **_named("reduction", ArgMin="ArgMin", ReduceAny="ReduceMax", ReduceAll="ReduceMin"),
    }
)
"""By type without version."""

COLLECTIVES = ("hcom", "hccl", "allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


def plain_type(op_type: str) -> str:
    """The type as the table has it: without version and ``D``, where it is not there in full."""
    for pattern in (r"$^", r"V\d+$", r"D$", r"V?\d*D$"):
        name = re.sub(pattern, "", op_type)
        if name in KINDS:
            return name
    return op_type


def is_collective_type(op_type: str) -> bool:
    """Whether the type moves data between cards, whose sizes these files do not give."""
    return op_type.lower().lstrip("_").startswith(COLLECTIVES)
