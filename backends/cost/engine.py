"""Which engine computes an op, in the graph engine's names."""

from __future__ import annotations

from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.training_ops import CONV_GRADS, FLASH_ATTENTION_GRAD

CUBE, VECTOR, CPU, LOCAL, HCCL = (
    "AIcoreEngine",
    "VectorEngine",
    "DNN_VM_AICPU",
    "DNN_VM_GE_LOCAL",
    "DNN_HCCL",
)

VIEWS = frozenset(
    ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Constant")
)
"""Ops that move nothing: their output lies where their input does, or is known beforehand."""

MATRIX = frozenset(
    (
        *("MatMul", "Gemm", "Einsum", "MatMulInteger", "QLinearMatMul"),
        *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
        *("Attention", "LSTM", "GRU", "RNN"),
    )
)
"""Ops of ai.onnx that the cube cores compute."""

OWN_MATRIX = frozenset(("FlashAttention", FLASH_ATTENTION_GRAD, *CONV_GRADS))
"""The product's own ops that the cube cores compute."""

MATRIX_ELSEWHERE = frozenset(
    (
        *(*OWN_MATRIX, "FusedMatMul", "FusedGemm", "MatMulNBits", "FusedConv", "QGemm"),
        *("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "TransposeMatMul"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"),
    )
)
"""The same of other domains."""

CONTROL = frozenset(
    (
        *("If", "Loop", "Scan", "NonZero", "Unique", "NonMaxSuppression", "TfIdfVectorizer"),
        *("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "LabelEncoder"),
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceMap"),
        *("SequenceInsert", "SequenceLength", "SplitToSequence", "ConcatFromSequence"),
        *("Optional", "OptionalGetElement", "OptionalHasElement", "ImageDecoder", "Det"),
    )
)
"""Ops of the control CPU: control flow, strings, sequences, results of unknown size."""

_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "send", "recv")


def is_collective(op: Op) -> bool:
    """Whether the op moves data between cards; ai.onnx has none such."""
    name = op.op_type.lower().replace("_", "").removeprefix("hcom").removeprefix("nccl")
    return bool(op.domain) and any(
        name == c or (len(c) > 6 and name.startswith(c)) for c in _COLLECTIVES
    )


def is_view(op: Op) -> bool:
    """Whether the op moves nothing."""
    return not op.domain and op.op_type in VIEWS


def engine(op: Op) -> str:
    """The name of the op's engine."""
    if is_view(op):
        return LOCAL
    if is_collective(op):
        return HCCL
    if op.bodies or op.op_type in CONTROL or op.domain.startswith("ai.onnx.ml"):
        return CPU
    matrix = MATRIX if not op.domain else MATRIX_ELSEWHERE
    if op.op_type in matrix and (op.domain != GE_DOMAIN or op.op_type in OWN_MATRIX):
        return CUBE
    return VECTOR
