"""The meaning of the ops by which ranks talk to each other.

All are in the domain ``gecompiler``. A graph of several ranks is written once for all that run
it: a collective names axes of the mesh (``communicator``: ``tp``, or joined, ``dp+sp``), and each
rank takes part in the group that differs from it along those axes only, ``group_size`` ranks
ordered by their coordinate. ``n`` is that size, X_i the input of the i-th rank of the group::

    AllReduce      X -> Y    reduction               Y_i = X_0 + ... + X_{n-1}
    AllGather      X -> Y    axis                    Y_i = X_0, ..., X_{n-1} along axis
    ReduceScatter  X -> Y    axis, reduction         Y_i = the i-th of n parts of the sum
    Broadcast      X -> Y    root                    Y_i = X_root
    AllToAll       X -> Y    split_axis, concat_axis Y_i = the i-th parts of X_0, ..., X_{n-1}
    Send           X ->      peer, tag               X goes to the rank ``peer`` places further
    Recv             -> Y    peer, tag, dtype, shape what the rank ``peer`` places further sent

``reduction`` is ``sum``, ``mean``, ``max`` or ``min``; sums of floats of 16 bits and less are made
in float32 and rounded once, in the order of the group, so that all ranks get the same bits.
``peer`` is an offset along the axis, modulo ``n`` (+1 the next stage of a pipeline). A Send and
its Recv share the ``tag`` and lie in the same communicator; neither may be dropped, since the
other would wait for ever.

Source: the primitives of MPI 4.0, chapter 6, and of HCCL (HcclAllReduce and so on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gecompiler.ir.op import GE_DOMAIN, Op

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "AllReduce", "AllGather", "ReduceScatter"
BROADCAST, ALL_TO_ALL, SEND, RECV = "Broadcast", "AllToAll", "Send", "Recv"
POINT_TO_POINT = (SEND, RECV)
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, *POINT_TO_POINT)
"""The op types in the domain ``gecompiler`` that meet their like on other ranks."""

Reduction = Literal["sum", "mean", "max", "min"]
REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean", "max", "min")


def is_collective_op(op: Op) -> bool:
    """Whether the op meets its like on other ranks."""
    return op.domain == GE_DOMAIN and op.op_type in COLLECTIVES


def message_value(op: Op) -> str:
    """The value whose size is the collective's: the whole that is gathered, else the input."""
    return op.outputs[0] if op.op_type in (ALL_GATHER, RECV) else op.inputs[0]


def message_bytes(graph: Graph, op: Op) -> int:
    """How many bytes a collective is about: reduced, gathered, scattered, spread or sent.

    Of an all-to-all, what each rank has. 0 where the size is not known.
    """
    found = graph.tensor(message_value(op))
    return found.bytes if found is not None and found.is_static else 0


def signature(graph: Graph, op: Op) -> str:
    """What all parts of one collective have in common, as `Task.signature` holds it.

    A Send and its Recv have the same: ``sent #3 f16[4, 8]``.
    """
    type_ = graph.tensor(message_value(op))
    if op.op_type in POINT_TO_POINT:
        return f"sent #{op.attr('tag', 0)} {type_}"
    words = [op.op_type]
    if op.op_type in (ALL_REDUCE, REDUCE_SCATTER):
        words.append(str(op.attr("reduction", "sum")))
    words += [f"{name}={op.attr(name, 0)}" for name in _PLACES.get(op.op_type, ())]
    return f"{' '.join(words)} {type_}"


_PLACES = {
    ALL_GATHER: ("axis",),
    REDUCE_SCATTER: ("axis",),
    BROADCAST: ("root",),
    ALL_TO_ALL: ("split_axis", "concat_axis"),
}


def channel(communicator: str, source: int, target: int) -> str:
    """The name of the communicator of two ranks by which one sends to the other: ``pp:0/1>2``."""
    return f"{communicator}/{source}>{target}"
