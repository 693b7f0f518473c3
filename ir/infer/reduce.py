"""Shapes of reductions: Reduce*, ArgMax and ArgMin."""

from __future__ import annotations

from gecompiler.ir.infer.node import Node, Rule, Shapes


def reduce(node: Node) -> Shapes:
    """The axes given as attribute or as second input become 1, or go; all by default."""
    shape, keep = node.shape(0), bool(node.op.attr("keepdims", 1))
    if shape is None:
        return (None,)
    axes = node.ints("axes", 1)
    if axes is None and node.has(1):
        return (_unknown_axes(node, len(shape), keep),)
    if not axes:
        if node.op.attr("noop_with_empty_axes", 0):
            return (shape,)
        axes = tuple(range(len(shape)))
    gone = node.fronts(axes, len(shape))
    if keep:
        return (tuple(1 if i in gone else d for i, d in enumerate(shape)),)
    return (tuple(d for i, d in enumerate(shape) if i not in gone),)


def _unknown_axes(node: Node, rank: int, keep: bool) -> tuple[None, ...] | None:
    count = node.items(1)
    if keep:
        return (None,) * rank
    # An empty list means all axes, so only a list with elements fixes the rank.
    return (None,) * (rank - len(count)) if count else None


def arg(node: Node) -> Shapes:
    """One axis becomes 1, or goes."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    axis = node.axis(len(shape))
    kept = (1,) if node.op.attr("keepdims", 1) else ()
    return ((*shape[:axis], *kept, *shape[axis + 1 :]),)


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

RULES: dict[str, Rule] = {
    **{f"Reduce{name}": reduce for name in _REDUCTIONS.split()},
    "ArgMax": arg,
    "ArgMin": arg,
}
