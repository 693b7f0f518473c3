"""How much a rank sends for a collective, whichever algorithm carries it out."""

from __future__ import annotations

from collections.abc import Callable

from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    RECV,
    SEND,
    is_collective_op,
)
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType


def sent_bytes(graph: Graph, op: Op) -> float:
    """The bytes that each rank sends, the least that any balanced algorithm can.

    With n ranks and B bytes of the whole: all-reduce 2 (n-1)/n B; all-gather, reduce-scatter,
    all-to-all (n-1)/n B (of a rank's own part, n times as large for the first); broadcast
    (n-1)/n B on average; a send B, a receive nothing. Source: Thakur, Rabenseifner, Gropp 2005,
    "Optimization of Collective Communication Operations in MPICH", section 3.
    """
    if op.op_type == RECV:
        return 0.0
    size, n = _bytes(graph, op.inputs[0]), max(1, int(op.attr("group_size", 1)))
    if op.op_type == SEND:
        return size
    if op.op_type == ALL_GATHER:
        size *= n
    share = size * (n - 1) / n
    return 2 * share if op.op_type == ALL_REDUCE else share


def volume_by_axes(graph: Graph, times: Callable[[Op], int] | None = None) -> dict[str, float]:
    """Bytes that each rank sends, by the axes of the mesh along which it does, in that order.

    Send and Recv along ``pp`` count as the others do. ``times``: how often each op runs (once).
    """
    found: dict[str, float] = {}
    for op in graph.ops:
        if is_collective_op(op):
            axes = str(op.attr("communicator", ""))
            count = 1 if times is None else times(op)
            found[axes] = found.get(axes, 0.0) + count * sent_bytes(graph, op)
    return dict(sorted(found.items()))


def _bytes(graph: Graph, value: str) -> float:
    type_ = graph.type(value)
    return float(type_.bytes) if isinstance(type_, TensorType) and type_.is_static else 0.0
