"""What an op asks of a device: the table that finds each op's formula.

Every formula takes caches as cold: inputs come from HBM and outputs go there, and L2 serves
only what one kernel reads again. An op without a formula, or whose sizes are not known well
enough for it, is a kernel of the vector cores bound by its memory traffic, never an error.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from gecompiler.backends.cost import attention_ops as attention
from gecompiler.backends.cost import conv, matmul, move, training, vector
from gecompiler.backends.cost.base import Sizes, sizes, vector_demand
from gecompiler.backends.cost.control import collective, on_cpu, with_bodies
from gecompiler.backends.cost.engine import CONTROL, is_collective, is_view
from gecompiler.ir.block_ops import ACTIVATIONS
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

Formula = Callable[["Device", Op, Sizes], "Demand | None"]

_COPIES = (
    *("Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Trilu", "ReverseSequence"),
    *("CenterCropPad", "Col2Im", "TensorScatter"),
)
_FILLS = ("ConstantOfShape", "Range", "OneHot", "EyeLike")

FORMULAS: MappingProxyType[str, Formula] = MappingProxyType(
    {
        **dict.fromkeys(vector.PASSES, vector.elementwise),
        "Gelu": vector.elementwise,
        **dict.fromkeys(vector.NORM_PASSES, vector.normalisation),
        **dict.fromkeys(vector.REDUCTIONS, vector.reduction),
        **dict.fromkeys(("TopK", "Sort"), vector.sorting),
        **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "MaxUnpool"), vector.pooling),
        **dict.fromkeys(_COPIES, move.copying),
        **dict.fromkeys(_FILLS, move.filling),
        **dict.fromkeys(("Transpose", "DepthToSpace", "SpaceToDepth"), move.transposing),
        **dict.fromkeys(("Gather", "GatherND", "GatherElements"), move.gathering),
        **dict.fromkeys(("ScatterND", "ScatterElements", "Scatter"), move.scattering),
        **dict.fromkeys(("Resize", "Upsample", "GridSample", "RoiAlign"), move.sampling),
        **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), matmul.matmul),
        **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "MatMulNBits"), matmul.matmul),
        **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), matmul.matmul),
        **dict.fromkeys(("Gemm", "FusedGemm"), matmul.gemm),
        "Einsum": matmul.einsum,
        **dict.fromkeys(("LSTM", "GRU", "RNN"), matmul.recurrent),
        **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), conv.convolution),
        **dict.fromkeys(("QLinearConv", "DeformConv"), conv.convolution),
        "ConvTranspose": conv.transposed,
        **dict.fromkeys(("MemcpyFromHost", "MemcpyToHost"), move.host_copy),
        f"{GE_DOMAIN}.FlashAttention": attention.flash_attention,
        **{f"{GE_DOMAIN}.{kind}": vector.fused_activation for kind in ACTIVATIONS},
        "Attention": attention.onnx_attention,
        "com.microsoft.Attention": attention.packed_attention,
        "com.microsoft.GroupQueryAttention": attention.grouped_query,
        "com.microsoft.MultiHeadAttention": attention.grouped_query,
        **training.FORMULAS,
    }
)
"""By qualified type, else by the bare type, which other domains use in the same sense."""

_UNKNOWN_PASSES = 4.0


def demand(device: Device, graph: Graph, op: Op, depth: int = 0) -> Demand:
    """The op's demand; nothing for views and for ops that work on nothing.

    ``depth`` counts the bodies around the op. Sizes that are not bound count as 1.
    """
    if is_view(op):
        return Demand()
    if op.bodies:
        return with_bodies(device, graph, op, depth)
    s = sizes(graph, op)
    if is_collective(op):
        return collective(device, op, s)
    if _on_cpu(op, s):
        return on_cpu(device, op, s)
    if s.outputs and all(t is not None and not t.elements for t in s.outputs):
        return Demand(fixed_us=device.vector_kernel_start_us)
    formula = FORMULAS.get(op.kind) or FORMULAS.get(op.op_type)
    found = formula(device, op, s) if formula is not None else None
    return found if found is not None else by_bytes(device, s)


def by_bytes(device: Device, s: Sizes) -> Demand:
    """A vector kernel that reads its inputs, writes its outputs, and does a little to each."""
    main = s.main
    count = main.elements if main else 0
    return vector_demand(device, s.load, s.store, _UNKNOWN_PASSES * count, s.bits)


def _on_cpu(op: Op, s: Sizes) -> bool:
    if op.op_type in CONTROL or op.domain.startswith("ai.onnx.ml"):
        return True
    tensors = (*s.inputs, *s.outputs)
    return any(t is not None and t.dtype is DType.STRING for t in tensors)
