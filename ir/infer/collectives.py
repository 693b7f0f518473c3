"""Shapes of the ops by which ranks talk; `collective_ops` says what they mean.

A rule refuses what no rank could run: an axis that is not there, a size that the ranks of the
group cannot share evenly, a reduction or a root that does not exist.
"""

from __future__ import annotations

from gecompiler.ir.collective_ops import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RECV,
    REDUCE_SCATTER,
    REDUCTIONS,
    SEND,
)
from gecompiler.ir.dims import Dim, floordiv, product
from gecompiler.ir.errors import nearest
from gecompiler.ir.infer.node import Node, Rule, Shapes
from gecompiler.ir.types import DType

_NAMES = tuple(dtype.short for dtype in DType)


def _group(node: Node) -> int:
    """How many ranks take part; every rule asks for it first."""
    inputs, outputs = (0 if node.op.op_type == RECV else 1), (0 if node.op.op_type == SEND else 1)
    if len(node.op.inputs) != inputs or len(node.op.outputs) != outputs:
        node.fail(f"a {node.op.op_type} has {inputs} inputs and {outputs} outputs")
    communicator, size = node.op.attr("communicator"), node.op.attr("group_size")
    if not isinstance(communicator, str) or not communicator:
        node.fail("the communicator is not given: axes of the mesh, such as 'tp' or 'dp+sp'")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        node.fail(f"group_size is {size!r}, expected the number of ranks")
    return size


def _check_reduction(node: Node) -> None:
    reduction = node.op.attr("reduction", "sum")
    if reduction not in REDUCTIONS:
        node.fail(f"reduction {reduction!r} is not known: {nearest(str(reduction), REDUCTIONS)}")


def _share(node: Node, size: Dim, count: int, axis: int) -> Dim:
    if isinstance(size, int) and size % count:
        node.fail(f"{size} along axis {axis} cannot be shared evenly by {count} ranks")
    return floordiv(size, count)


def all_reduce(node: Node) -> Shapes:
    """Like X."""
    _group(node)
    _check_reduction(node)
    return (node.shape(0),)


def broadcast(node: Node) -> Shapes:
    """Like X; the root is one of the group."""
    size, root = _group(node), node.op.attr("root", 0)
    if not isinstance(root, int) or not 0 <= root < size:
        node.fail(f"root is {root!r}, expected a place in the group, 0 to {size - 1}")
    return (node.shape(0),)


def all_gather(node: Node) -> Shapes:
    """The axis is as long as those of all ranks together."""
    size, shape = _group(node), node.shape(0)
    if shape is None:
        return (None,)
    axis = node.axis(len(shape))
    return ((*shape[:axis], product((shape[axis], size)), *shape[axis + 1 :]),)


def reduce_scatter(node: Node) -> Shapes:
    """Of the axis each rank keeps its part."""
    size, shape = _group(node), node.shape(0)
    _check_reduction(node)
    if shape is None:
        return (None,)
    axis = node.axis(len(shape))
    part = _share(node, shape[axis], size, axis)
    return ((*shape[:axis], part, *shape[axis + 1 :]),)


def all_to_all(node: Node) -> Shapes:
    """One axis is cut, along the other the parts of all ranks are put together."""
    size, shape = _group(node), node.shape(0)
    if shape is None:
        return (None,)
    cut = node.axis(len(shape), name="split_axis")
    joined = node.axis(len(shape), name="concat_axis")
    found = list(shape)
    found[cut] = _share(node, found[cut], size, cut)
    found[joined] = product((found[joined], size))
    return (tuple(found),)


def _check_peer(node: Node) -> None:
    _group(node)
    for name in ("peer", "tag"):
        if not isinstance(node.op.attr(name, 0), int):
            node.fail(f"{name} is {node.op.attr(name)!r}, expected a whole number")


def send(node: Node) -> Shapes:
    """Makes nothing."""
    _check_peer(node)
    return ()


def recv(node: Node) -> Shapes:
    """What the attributes say."""
    _check_peer(node)
    shape = node.op.attr("shape", ())
    if not isinstance(shape, tuple) or not all(isinstance(d, int) and d >= 0 for d in shape):
        node.fail(f"shape is {shape!r}, expected the sizes of what is sent")
    return (tuple(d for d in shape if isinstance(d, int)),)


def received_dtype(node: Node) -> DType | None:
    """The element type that a Recv names."""
    name = node.op.attr("dtype", "")
    if not isinstance(name, str) or name not in _NAMES:
        node.fail(f"dtype {name!r} is not known: {nearest(str(name), _NAMES)}")
    return DType.from_short(name)


RULES: dict[str, Rule] = {
    ALL_REDUCE: all_reduce,
    ALL_GATHER: all_gather,
    REDUCE_SCATTER: reduce_scatter,
    BROADCAST: broadcast,
    ALL_TO_ALL: all_to_all,
    SEND: send,
    RECV: recv,
}
