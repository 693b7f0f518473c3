"""A residual sum and the norm behind it are one op, which hands out the sum where it is needed.

A view that leaves the normalised axes as they are may lie between (OPT flattens the batch).
Run after the norms are whole: what reads a norm's output can no more become part of it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.types import TensorType
from gecompiler.passes.block.norm_op import PLAIN_KINDS, read_norm
from gecompiler.passes.block.patterns import is_free_of, is_row, keeps_shape, maker
from gecompiler.passes.block.region import is_closed, shared_info
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, slots=True)
class _Sum:
    """``op`` adds two tensors of one shape; ``view`` lies between it and the norm, if one does."""

    op: Op
    view: Op | None

    @property
    def value(self) -> str:
        return self.op.outputs[0]


def add_norm(r: Rewriter, op: Op) -> Result | None:
    """``norm(x + residual)``, and ``norm(x + bias + residual)``."""
    found = read_norm(r, op)
    total = None if found is None else _sum_before(r, found[1].x, found[0].axis)
    if found is None or total is None:
        return None
    spec = replace(found[0], adds=True)
    for members, parts in _operands(r, total, found[1]):
        made = _joined(r, op, total, members, spec, parts)
        if made is not None:
            return made
    return None


def _sum_before(r: Rewriter, value: str, axis: int) -> _Sum | None:
    """The sum that a value is, or is a view of, if all is of one shape."""
    view = maker(r, value, *_VIEWS)
    if view is not None:
        before, after = r.facts.shape(view.inputs[0]), r.facts.shape(value)
        if not before or not after or before[axis:] != after[axis:] or len(before) < -axis:
            return None
        value = view.inputs[0]
    add = maker(r, value, "Add")
    if add is None or not all(keeps_shape(r, add, v) for v in add.inputs):
        return None
    return _Sum(add, view)


def _operands(
    r: Rewriter, total: _Sum, inputs: NormInputs
) -> Iterator[tuple[tuple[Op, ...], NormInputs]]:
    """The ways to read the sum, best first: with a bias added to either operand, or plainly."""
    a, b = total.op.inputs
    for value, residual in ((a, b), (b, a)):
        add, shape = maker(r, value, "Add"), r.facts.shape(value)
        for x, bias in (add.inputs, add.inputs[::-1]) if add is not None else ():
            if add is not None and shape and keeps_shape(r, add, x) and is_row(r, bias, shape[-1]):
                yield (add,), replace(inputs, x=x, residual=residual, bias=bias)
    yield (), replace(inputs, x=a, residual=b)


def _joined(
    r: Rewriter, op: Op, total: _Sum, members: tuple[Op, ...], spec: Norm, inputs: NormInputs
) -> Result | None:
    """The norm with its sum; None where an inner value is read, or the user parted the ops."""
    view = total.view
    keeps_view = view is not None and not r.graph.single_use(view.outputs[0])
    hands_out = keeps_view or not r.graph.single_use(total.value)
    ops = [*members, total.op, op]
    if view is not None and not hands_out:
        ops.append(view)
    results = (*op.outputs, total.value) if hands_out else op.outputs
    if not is_closed(r, ops, results):
        return None
    info = shared_info(r, op, ops, spec.op_type)
    if info is None:
        return None
    if view is None and not hands_out:
        listed = inputs.listed(adds=True)
        return op.with_(
            op_type=spec.op_type, domain=GE_DOMAIN, inputs=listed, attrs=spec.attrs(), info=info
        )
    # An op that makes the sum must read nothing that is computed from it.
    free = all(is_free_of(r, v, total.value) for v in (inputs.scale, inputs.shift))
    if (hands_out and not free) or r.is_pinned(op) or r.is_pinned(total.op):
        return None
    return _emitted(r, op, total, spec, inputs, info, hands_out=hands_out)


def _emitted(
    r: Rewriter,
    op: Op,
    total: _Sum,
    spec: Norm,
    inputs: NormInputs,
    info: OpInfo,
    *,
    hands_out: bool,
) -> Result:
    """Adds the op; everything that read the sum reads its second output."""
    kind = r.graph.tensor(total.value)
    types = (None if kind is None else TensorType(spec.output, kind.shape), kind)
    value = r.graph.emit(
        spec.op_type,
        inputs.listed(adds=True),
        attrs=spec.attrs(),
        domain=GE_DOMAIN,
        info=info,
        stem=f"{info.scope}/{spec.op_type}" if info.scope else spec.op_type,
        outputs=1 + hands_out,
        types=types[: 1 + hands_out],
    )
    made = r.graph.producer(value)
    assert made is not None
    view = total.view
    if hands_out:
        r.forward(total.op, (made.outputs[1],))
    if view is None:
        return value
    return op.with_(
        op_type=view.op_type,
        domain="",
        inputs=(value, *view.inputs[1:]),
        attrs=view.attrs,
        info=view.info,
    )


RULES: RuleTable = dict.fromkeys(PLAIN_KINDS, (add_norm,))
