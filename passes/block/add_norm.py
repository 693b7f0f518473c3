"""A residual sum and the norm behind it are one op, which hands out the sum where it is needed.

Run after the norms are whole: what reads a norm's output can no more become part of it then.
"""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.block.norm_op import PLAIN_KINDS, read_norm
from gecompiler.passes.block.patterns import is_parameter, is_row, keeps_shape, maker
from gecompiler.passes.block.region import is_closed, shared_info
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def add_norm(r: Rewriter, op: Op) -> Result | None:
    """``norm(x + residual)``, and ``norm(x + bias + residual)``."""
    found = read_norm(r, op)
    total = None if found is None else maker(r, found[1].x, "Add")
    if found is None or total is None or not _is_residual(r, total):
        return None
    spec, inputs = found
    for x, residual in (total.inputs, total.inputs[::-1]):
        biased = _bias(r, x)
        if biased is None:
            continue
        linear, bias, ops = biased
        parts = replace(inputs, x=linear, residual=residual, bias=bias)
        made = _joined(r, op, total, (*ops, total), replace(spec, adds=True), parts)
        if made is not None:
            return made
    x, residual = total.inputs
    parts = replace(inputs, x=x, residual=residual)
    return _joined(r, op, total, (total,), replace(spec, adds=True), parts)


def _is_residual(r: Rewriter, total: Op) -> bool:
    """Whether two tensors of one shape are added."""
    return all(keeps_shape(r, total, value) for value in total.inputs)


def _bias(r: Rewriter, value: str) -> tuple[str, str, tuple[Op, ...]] | None:
    """The value before a bias was added, the bias, and the op that did."""
    add = maker(r, value, "Add")
    shape = r.facts.shape(value)
    if add is None or not shape:
        return None
    for x, bias in (add.inputs, add.inputs[::-1]):
        if keeps_shape(r, add, x) and is_row(r, bias, shape[-1]):
            return x, bias, (add,)
    return None


def _joined(
    r: Rewriter, op: Op, total: Op, members: tuple[Op, ...], spec: Norm, inputs: NormInputs
) -> Result | None:
    """The norm with its sum; None where an inner value is read, or the user parted the ops."""
    ops = [*members, op]
    info = shared_info(op, ops)
    inner = r.graph.single_use(total.outputs[0])
    results = op.outputs if inner else (*op.outputs, *total.outputs)
    if info is None or not is_closed(r, ops, results):
        return None
    whole = op.with_(
        op_type=spec.op_type,
        domain=GE_DOMAIN,
        inputs=inputs.listed(adds=True),
        attrs=spec.attrs(),
        info=info,
    )
    if inner:
        return whole
    # The op will make the sum, so nothing that it reads may be computed from that.
    free = is_parameter(r, inputs.scale) and is_parameter(r, inputs.shift)
    if not free or r.is_pinned(op) or r.is_pinned(total):
        return None
    return _with_sum(r, total, whole)


def _with_sum(r: Rewriter, total: Op, whole: Op) -> str:
    """Adds the op with both outputs; everything that read the sum reads its second one."""
    kind = r.graph.tensor(whole.outputs[0])
    scope = whole.info.scope
    value = r.graph.emit(
        whole.op_type,
        whole.inputs,
        attrs=whole.attrs,
        domain=GE_DOMAIN,
        info=whole.info,
        stem=f"{scope}/{whole.op_type}" if scope else whole.op_type,
        outputs=2,
        types=(kind, kind),
    )
    made = r.graph.producer(value)
    assert made is not None
    r.forward(total, (made.outputs[1],))
    return value


RULES: RuleTable = dict.fromkeys(PLAIN_KINDS, (add_norm,))
