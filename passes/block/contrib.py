"""Norms and activations that onnxruntime's optimizer has fused already, as the same fused ops.

Their meaning is that of ``ContribOperators.md`` of onnxruntime 1.32: they compute in float32
(float64 for float64) and round once. An op is left as it is where it hands out statistics that
somebody reads. What it adds becomes sums again, which `add_norm` and `gated` take in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gecompiler.ir.block_ops import Activation, Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import DType
from gecompiler.passes.block.activation_op import ActivationInputs
from gecompiler.passes.block.norm_parts import is_plain_norm
from gecompiler.passes.block.patterns import same_type
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

DOMAIN = "com.microsoft"


# ------------------------------------------------------------------ norms


def simplified_norm(r: Rewriter, op: Op) -> Result | None:
    """``SimplifiedLayerNormalization`` (X, scale): an RMSNorm of its scale's type."""
    shape, kind = r.facts.shape(op.inputs[0]), r.facts.dtype(op.outputs[0])
    if not shape or kind is None or is_read(r, op.outputs[1:]) or r.is_pinned(op):
        return None
    if not is_plain_norm(op, 1e-5):
        return None
    axis, stash = op.attr("axis", -1), DType.from_code(op.attr("stash_type", 1))
    spec = Norm(
        centred=False,
        axis=axis if axis < 0 else axis - len(shape),
        epsilon=float(op.attr("epsilon", 1e-5)),
        stash=stash,
        scale_type=stash,
        output=kind,
    )
    inputs = NormInputs(op.inputs[0], scale=op.inputs[1])
    return (emit(r, op, spec.op_type, inputs.listed(adds=False), spec.attrs(), domain=GE_DOMAIN),)


def skip_norm(r: Rewriter, op: Op) -> Result | None:
    """The norm of a sum, which is the last output: input, skip, gamma, beta (if centred), bias."""
    results = (op.outputs[0], *op.outputs[3:4])
    kind, shape = same_type(r, *op.inputs[:2], *results), r.facts.shape(op.inputs[0])
    if kind is None or not shape or is_read(r, op.outputs[1:3]) or r.is_pinned(op):
        return None
    if not is_plain_norm(op, 1e-12):
        return None
    centred = op.op_type == "SkipLayerNormalization"
    stash = DType.F64 if kind is DType.F64 else DType.F32
    epsilon = float(op.attr("epsilon", 1e-12))
    spec = Norm(centred, axis=-1, epsilon=epsilon, stash=stash, scale_type=stash, output=kind)
    total = op.inputs[0]
    for added in (op.input(4 if centred else 3), op.inputs[1]):
        total = emit(r, op, "Add", (total, added), {}, like=op.inputs[0]) if added else total
    shift = op.input(3) if centred else ""
    inputs = NormInputs(total, scale=op.input(2), shift=shift).listed(adds=False)
    value = emit(r, op, spec.op_type, inputs, spec.attrs(), domain=GE_DOMAIN)
    return (value, None, None, total)[: len(op.outputs)]


def bias_add(r: Rewriter, op: Op) -> Result | None:
    """``BiasAdd``: X + bias + skip."""
    if r.facts.shape(op.inputs[0]) is None or r.is_pinned(op):
        return None
    value = emit(r, op, "Add", op.inputs[:2], {})
    return op.with_(op_type="Add", domain="", inputs=(value, op.inputs[2]), attrs={})


# ------------------------------------------------------------------ activations


def activation(r: Rewriter, op: Op) -> Result | None:
    """An activation of X (and a bias), by the table below."""
    spec = _ACTIVATIONS[op.op_type]
    if spec.function == "Silu":
        spec = Activation("Silu", alpha=float(op.attr("alpha", 1.702)))
    inputs = ActivationInputs(op.inputs[0], bias=op.input(1)).listed(spec.gated)
    return op.with_(op_type=spec.op_type, domain=GE_DOMAIN, inputs=inputs, attrs=spec.attrs())


def swiglu(r: Rewriter, op: Op) -> Result | None:
    """``SwiGLU`` (gate, up, or both in one): clamped and shifted."""
    if op.attr("round_activation", 0):
        return None
    spec = Activation(
        "Silu",
        gated=True,
        alpha=float(op.attr("activation_alpha", 1.0)),
        limit=max(0.0, float(op.attr("limit", 0.0))),
        shift=float(op.attr("activation_beta", 0.0)),
    )
    inputs = ActivationInputs(op.inputs[0], op.input(1)).listed(gated=True)
    return op.with_(op_type=spec.op_type, domain=GE_DOMAIN, inputs=inputs, attrs=spec.attrs())


_ACTIVATIONS: Mapping[str, Activation] = {
    "BiasGelu": Activation("Gelu"),
    "BiasSplitGelu": Activation("Gelu", gated=True, gate="last"),
    "FastGelu": Activation("Gelu", approximate="tanh"),
    "Gelu": Activation("Gelu"),
    "QuickGelu": Activation("Silu", alpha=1.702),
}
"""What each op means."""


# ------------------------------------------------------------------ shared


def emit(
    r: Rewriter,
    op: Op,
    op_type: str,
    inputs: Sequence[str],
    attrs: Mapping[str, Attr],
    *,
    domain: str = "",
    like: str = "",
) -> str:
    """Adds one of the ops that ``op`` becomes; its type is that of ``like`` (default: Y)."""
    info = replace(op.info, sources=op.info.sources or (op.name,))
    kind = r.graph.tensor(like or op.outputs[0])
    value = r.graph.emit(
        op_type, inputs, kind, attrs=attrs, domain=domain, info=info, stem=f"{op.name}_{op_type}"
    )
    maker = r.graph.producer(value)
    assert maker is not None
    r.push(maker)
    return value


def is_read(r: Rewriter, values: Sequence[str]) -> bool:
    """Whether anything reads one of the values; ``""`` is none."""
    return any(v and (r.graph.uses(v) or r.graph.is_output(v)) for v in values)


NORM_RULES: RuleTable = {
    "SimplifiedLayerNormalization": (simplified_norm,),
    f"{DOMAIN}.SkipLayerNormalization": (skip_norm,),
    f"{DOMAIN}.SkipSimplifiedLayerNormalization": (skip_norm,),
    f"{DOMAIN}.BiasAdd": (bias_add,),
}

ACTIVATION_RULES: RuleTable = {
    **{f"{DOMAIN}.{name}": (activation,) for name in _ACTIVATIONS},
    f"{DOMAIN}.SwiGLU": (swiglu,),
}
