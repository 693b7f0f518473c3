"""What stands around a norm and becomes part of it: scale, shift, casts before and after."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes.block.norm_op import PLAIN_KINDS, keeps_operand, norm_in_place, read_norm
from gecompiler.passes.block.patterns import covers, is_wider, widened_from
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def scale_norm(r: Rewriter, op: Op) -> Result | None:
    """``norm(x) * scale``, the scale one for all but the normalised axes."""
    for value, scale in (op.inputs, op.inputs[::-1]):
        found = _norm_of(r, op, value, scale)
        if found is None:
            continue
        norm_op, spec, inputs = found
        kind = r.facts.dtype(value)
        if inputs.scale or inputs.shift or kind is None:
            continue
        spec = replace(spec, scale_type=kind)
        inputs = replace(inputs, scale=scale)
        members = (
            () if _is_shared(r, value, (r.facts.shape(value) or ())[spec.axis :]) else (norm_op,)
        )
        made = norm_in_place(r, op, members, spec, inputs, norm_op)
        if made is not None:
            return made
    return None


def _is_shared(r: Rewriter, value: str, axes: Shape) -> bool:
    """Whether several scales read one norm: each gets a norm of its own, as in parallel blocks.

    Normalising twice reads X twice; one norm and two products read three tensors.
    """
    users = r.graph.users(value)
    if len(users) < 2 or r.graph.is_output(value) or not all(u.is_("Mul") for u in users):
        return False
    rows = [v for u in users for v in u.inputs if v != value]
    return len(rows) == len(users) and all(covers(r, v, axes) for v in rows)


def shift_norm(r: Rewriter, op: Op) -> Result | None:
    """``norm(x) + shift``, the shift one for all but the normalised axes."""
    for value, shift in (op.inputs, op.inputs[::-1]):
        found = _norm_of(r, op, value, shift)
        if found is None:
            continue
        norm_op, spec, inputs = found
        kind = r.facts.dtype(value)
        if inputs.shift or kind is None or (inputs.scale and spec.scale_type is not kind):
            continue
        spec = replace(spec, scale_type=kind)
        inputs = replace(inputs, shift=shift)
        made = norm_in_place(r, op, (norm_op,), spec, inputs, norm_op)
        if made is not None:
            return made
    return None


def _norm_of(r: Rewriter, op: Op, value: str, row: str) -> tuple[Op, Norm, NormInputs] | None:
    """The norm that makes ``value``, if ``row`` may be taken in as its scale or shift."""
    norm_op = r.graph.producer(value)
    found = read_norm(r, norm_op)
    shape = r.facts.shape(value)
    if norm_op is None or found is None or shape is None or found[0].adds:
        return None
    spec, inputs = found
    fits = keeps_operand(r, op, value) and covers(r, row, shape[spec.axis :])
    return (norm_op, spec, inputs) if fits else None


def round_norm(r: Rewriter, op: Op) -> Result | None:
    """A norm cast to a narrower type, if that is the only rounding of its last step."""
    norm_op = r.graph.producer(op.inputs[0])
    found, kind = read_norm(r, norm_op), r.facts.dtype(op.outputs[0])
    if norm_op is None or found is None or kind is None or found[0].adds:
        return None
    spec, inputs = found
    last = spec.scale_type if inputs.scale or inputs.shift else spec.stash
    if last is not spec.output or not is_wider(spec.output, kind):
        return None
    return norm_in_place(r, op, (norm_op,), replace(spec, output=kind), inputs, norm_op)


def read_narrow(r: Rewriter, op: Op) -> Result | None:
    """A norm of a tensor that was widened before: the norm does that itself."""
    found = read_norm(r, op)
    narrow = None if found is None else widened_from(r, found[1].x)
    if found is None or narrow is None or found[0].adds:
        return None
    spec, inputs = found
    kind = r.facts.dtype(inputs.x)
    if kind is None or not (spec.stash is kind or is_wider(spec.stash, kind)):
        return None
    return norm_in_place(r, op, (), spec, replace(inputs, x=narrow), op)


RULES: RuleTable = {
    "Mul": (scale_norm,),
    "Add": (shift_norm,),
    "Cast": (round_norm,),
    **dict.fromkeys(PLAIN_KINDS, (read_narrow,)),
}
