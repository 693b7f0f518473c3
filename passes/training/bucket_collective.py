"""Writing a collective over a flat bucket, under a name that says what it is for."""

from __future__ import annotations

from gecompiler.ir.collective_ops import ALL_GATHER, REDUCE_SCATTER
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.sync_options import Group
from gecompiler.passes.training.tape import Tape


def collective(tape: Tape, name: str, op_type: str, value: str, group: Group, **attrs: Attr) -> str:
    """Adds the op, which gathers or scatters along the first axis; the name of its output."""
    graph, kind = tape.graph, tape.type(value)
    shape = list(kind.sizes)
    if op_type == ALL_GATHER:
        shape[0] *= group.size
    if op_type == REDUCE_SCATTER:
        shape[0] //= group.size
    given: dict[str, Attr] = {"communicator": group.communicator, "group_size": group.size}
    output = graph.fresh(f"{name}:0")
    op = Op(
        graph.fresh(name), op_type, (value,), (output,), {**given, **attrs}, GE_DOMAIN, tape.info
    )
    graph.add_op(op, [TensorType(kind.dtype, tuple(shape))])
    return output
