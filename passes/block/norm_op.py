"""Reading norms, whether of ai.onnx or ours, and making them: ai.onnx's where it means the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gecompiler.ir.block_ops import LAYER_NORM, NORMS, RMS_NORM, Norm, NormInputs
from gecompiler.ir.constants import Constant
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import DType
from gecompiler.passes.block.norm_parts import is_plain_norm
from gecompiler.passes.block.patterns import is_wider, keeps_shape, maker, widened_from, with_number
from gecompiler.passes.block.region import fused
from gecompiler.passes.op_params import elements
from gecompiler.passes.rewriting import Rewriter

_STANDARD = {"RMSNormalization": False, "LayerNormalization": True}
"""Norms of ai.onnx: whether they are centred."""

PLAIN_KINDS = (*_STANDARD, f"{GE_DOMAIN}.{RMS_NORM}", f"{GE_DOMAIN}.{LAYER_NORM}")
"""Kinds of norms that add no residual."""


def read_norm(r: Rewriter, op: Op | None) -> tuple[Norm, NormInputs] | None:
    """The norm that an op is; None when it is none, or hands out its statistics."""
    if op is None:
        return None
    if op.domain == GE_DOMAIN and op.op_type in NORMS:
        return Norm.of(op), NormInputs.of(op)
    if op.domain or op.op_type not in _STANDARD or len(op.outputs) > 1:
        return None
    kind, shape = r.facts.dtype(op.outputs[0]), r.facts.shape(op.inputs[0])
    if kind is None or not shape or r.facts.dtype(op.inputs[0]) is not kind:
        return None
    axis, stash = op.attr("axis", -1), op.attr("stash_type", 1)
    if not is_plain_norm(op, 1e-5):
        return None
    spec = Norm(
        centred=_STANDARD[op.op_type],
        axis=axis if axis < 0 else axis - len(shape),
        epsilon=float(op.attr("epsilon", 1e-5)),
        stash=DType.from_code(stash),
        scale_type=kind,
        output=kind,
    )
    scale = "" if r.facts.uniform(op.inputs[1]) == 1 else op.inputs[1]
    return spec, NormInputs(op.inputs[0], "", scale, op.input(2))


def norm_in_place(
    r: Rewriter, last: Op, members: Iterable[Op], spec: Norm, inputs: NormInputs, named_after: Op
) -> Op | None:
    """The norm in the place of ``last`` and ``members``; None when these may not become one."""
    scale, offset = _bare_scale(r, inputs.scale, spec.scale_type)
    if not spec.offset and scale:
        spec, inputs = replace(spec, offset=offset), replace(inputs, scale=scale)
    if not inputs.scale and not inputs.shift:
        spec = replace(spec, scale_type=spec.output)
    standard = _standard_attrs(r, last, spec, inputs)
    if standard is None:
        listed = inputs.listed(spec.adds)
        return fused(r, last, members, spec.op_type, listed, spec.attrs(), named_after=named_after)
    op_type = "LayerNormalization" if spec.centred else "RMSNormalization"
    made = fused(
        r, last, members, op_type, (inputs.x,), standard, domain="", named_after=named_after
    )
    if made is None:
        return None
    listed = (inputs.x, inputs.scale or _ones(r, last, spec), inputs.shift)
    return made.with_(inputs=listed if inputs.shift else listed[:2])


def _bare_scale(r: Rewriter, scale: str, kind: DType) -> tuple[str, float]:
    """What a scale is before it is widened and a number (Gemma's 1) is added, and that number."""
    offset, bare = 0.0, scale
    add = maker(r, scale, "Add") if scale else None
    for x, found in with_number(r, add) if add is not None else ():
        if r.facts.dtype(scale) is kind:
            bare, offset = x, found
    narrow = widened_from(r, bare) if bare else None
    return (narrow if narrow is not None and r.facts.dtype(bare) is kind else bare), offset


def _standard_attrs(
    r: Rewriter, last: Op, spec: Norm, inputs: NormInputs
) -> dict[str, Attr] | None:
    """The attributes of the op of ai.onnx that means the same; None when there is none."""
    kind, shape = r.facts.dtype(last.outputs[0]), r.facts.shape(last.outputs[0])
    since = 17 if spec.centred else 23
    if kind is None or not shape or r.opset < since or spec.adds or spec.offset:
        return None
    types = (spec.scale_type, spec.output, r.facts.dtype(inputs.x))
    typed = spec.stash is DType.F32 and types == (kind, kind, kind)
    if not typed or is_wider(kind, DType.F32) or (inputs.shift and not spec.centred):
        return None
    if any(r.facts.dtype(v) is not kind for v in (inputs.scale, inputs.shift) if v):
        return None
    count = elements(shape[spec.axis :])
    if not inputs.scale and (count is None or not r.budget.allows(count, kind.bits)):
        return None
    return {"axis": spec.axis, "epsilon": spec.epsilon, "stash_type": 1}


def _ones(r: Rewriter, last: Op, spec: Norm) -> str:
    """A scale that changes nothing, where ai.onnx insists on one."""
    kind, shape = r.facts.dtype(last.outputs[0]), r.facts.shape(last.outputs[0])
    assert kind is not None
    assert shape is not None
    sizes = [d for d in shape[spec.axis :] if isinstance(d, int)]
    return r.constant(Constant.of(np.ones(sizes), kind), f"{last.name}_ones")


def keeps_operand(r: Rewriter, op: Op, value: str) -> bool:
    """Whether a binary op's result has the shape and type of that operand."""
    return keeps_shape(r, op, value) and r.facts.dtype(op.outputs[0]) is r.facts.dtype(value)
