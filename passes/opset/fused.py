"""Ops of ai.onnx that stand for several ops and came late, as the product's own fused ops.

Below the version that brought them they are expanded like any fused op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Activation, Norm, NormInputs, Rotary
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.refusal import Refusal


def _gelu(build: Builder, op: Op) -> Op:
    spec = Activation("Gelu", approximate=op.attr("approximate", "none"))
    return op.with_(op_type=spec.op_type, domain=GE_DOMAIN, attrs=spec.attrs())


def _swish(build: Builder, op: Op) -> Op:
    spec = Activation("Silu", alpha=float(op.attr("alpha", 1.0)))
    return op.with_(op_type=spec.op_type, domain=GE_DOMAIN, attrs=spec.attrs())


def _norm(build: Builder, op: Op) -> Op:
    if any(op.outputs[1:]):
        raise Refusal("it hands out its statistics")
    rank = len(build.shape(op.inputs[0]))
    axis = op.attr("axis", -1)
    spec = Norm(
        centred=op.op_type == "LayerNormalization",
        axis=axis if axis < 0 else axis - rank,
        epsilon=float(op.attr("epsilon", 1e-5)),
        stash=DType.from_code(op.attr("stash_type", 1)),
        scale_type=build.dtype(op.outputs[0]),
        output=build.dtype(op.outputs[0]),
    )
    inputs = NormInputs(op.inputs[0], scale=op.inputs[1], shift=op.input(2)).listed(adds=False)
    return op.with_(
        op_type=spec.op_type,
        domain=GE_DOMAIN,
        inputs=inputs,
        attrs=spec.attrs(),
    )


def _rotary(build: Builder, op: Op) -> Op:
    shape, tables = build.shape(op.inputs[0]), list(op.inputs[1:3])
    if len(shape) != 4:
        raise Refusal(f"it turns a tensor of rank {len(shape)}")
    kind = build.dtype(op.inputs[1])
    if op.input(3):
        places = build.shape(op.inputs[3])
        width = build.shape(tables[0])[-1]
        tables = [
            build.emit("Gather", (t, op.inputs[3]), kind, (*places, width), axis=0) for t in tables
        ]
    dim = op.attr("rotary_embedding_dim", 0) or shape[3]
    if not isinstance(dim, int):
        raise Refusal(f"its width is not known: {dim}")
    spec = Rotary(dim, 0, "interleaved" if op.attr("interleaved", 0) else "half")
    cos, sin = (build.unsqueeze(table, (1,)) for table in tables)
    return op.with_(
        op_type=ROTARY_EMBEDDING,
        domain=GE_DOMAIN,
        inputs=(op.inputs[0], cos, sin),
        attrs=spec.attrs(),
    )


FUSED: Mapping[str, tuple[int, Callable[[Builder, Op], Op]]] = {
    "Gelu": (20, _gelu),
    "LayerNormalization": (17, _norm),
    "RMSNormalization": (23, _norm),
    "RotaryEmbedding": (23, _rotary),
    "Swish": (24, _swish),
}
"""Since which version there is such an op, and how it is read."""
