"""A fusion's region: the ops that become one, closed towards the rest of the graph.

Every fusion of this package goes through `fused`, which refuses one that would hide a value
somebody else reads, take an op out of a user's order of control, or mix ops that the user
placed differently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gecompiler.ir.errors import GraphError
from gecompiler.ir.op import GE_DOMAIN, Attr, Op, OpInfo
from gecompiler.ir.verify.block_ops import check_block_op
from gecompiler.passes.rewriting import Rewriter
from gecompiler.passes.user_marks import difference, shared_marks


def fused(
    r: Rewriter,
    last: Op,
    members: Iterable[Op],
    op_type: str,
    inputs: Sequence[str],
    attrs: Mapping[str, Attr],
    *,
    domain: str = GE_DOMAIN,
    named_after: Op | None = None,
) -> Op | None:
    """The op in the place of ``last`` that stands for it and ``members``; None if it may not be.

    It may not where it would break the rules of its kind either.

    ``named_after`` is the member that gives the scope and the group (default: ``last``).
    """
    inside = dict.fromkeys(op.name for op in (*members, last))
    ops = [r.graph.op(name) for name in inside]
    if not is_closed(r, ops, last.outputs):
        return None
    info = shared_info(r, named_after or last, ops, op_type)
    if info is None:
        return None
    found = last.with_(
        op_type=op_type, domain=domain, inputs=tuple(inputs), attrs=dict(attrs), info=info
    )
    return found if is_sound(r, found) else None


def is_sound(r: Rewriter, op: Op) -> bool:
    """Whether the op keeps the rules of its kind, which sizes that cannot be may break."""
    if not all(r.graph.has_value(v) for v in op.inputs if v):
        return True  # what is still to be emitted is of the types that the fusion gives it
    try:
        check_block_op(r.graph, op)
    except GraphError:
        return False
    return True


def is_closed(r: Rewriter, ops: Sequence[Op], results: Collection[str]) -> bool:
    """Whether nothing outside reads what the ops compute, but for ``results``.

    Ops that make no result must not be held in place by an order of control.
    """
    inside = {op.name for op in ops}
    for op in ops:
        hidden = [v for v in op.outputs if v and v not in results]
        if len(hidden) == len(op.outputs) and r.is_pinned(op):
            return False
        for value in hidden:
            if r.graph.is_output(value) or any(u.op not in inside for u in r.graph.uses(value)):
                return False
    return True


def shared_info(r: Rewriter, named_after: Op, ops: Sequence[Op], what: str) -> OpInfo | None:
    """What is known of the fused op; None, with a warning, when the user parted its ops."""
    marks = shared_marks(ops)
    if marks is None:
        r.warn(
            "fusion-refused",
            f"ops that would become one {what} stay apart: {difference(ops)}",
            "give all of them one stream label, priority and limit of cores, or none",
        )
        return None
    label, priority, cube, vector = marks
    sources = dict.fromkeys(s for o in ops for s in (o.info.sources or (o.name,)))
    info = named_after.info
    return replace(
        info,
        group=info.group or next((o.info.group for o in ops if o.info.group), ""),
        label=label,
        priority=priority,
        cube_cores=cube,
        vector_cores=vector,
        sources=tuple(sources),
    )
