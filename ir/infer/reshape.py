"""Shapes of ops that only rearrange: Reshape, Flatten, Transpose, Squeeze, Expand, Tile, ..."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.dim_division import cancel
from gecompiler.ir.dims import Dim, floordiv, product
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes
from gecompiler.ir.types import Shape


def reshape(node: Node) -> Shapes:
    """The target's entries: 0 copies a size (without allowzero), -1 is what is left over.

    One entry whose value is unknown is what is left over too, whatever it holds.
    """
    target, source = node.items(1), node.shape(0)
    if target is None:
        return (None,)
    if target.count(-1) > 1:
        node.fail(f"the target shape {_text(target)} has more than one -1")
    sizes = [_entry(node, source, target, axis) for axis in range(len(target))]
    known = [s for s in sizes if s is not None]
    if source is None:
        return (tuple(sizes),)
    if len(known) == len(sizes):
        _check_count(node, source, sizes)
    elif len(known) + 1 == len(sizes):
        sizes[sizes.index(None)] = _left_over(node, source, known)
    return (tuple(sizes),)


def _entry(node: Node, source: Shape | None, target: Sequence[Dim | None], axis: int) -> Dim | None:
    entry = target[axis]
    if entry == 0 and not node.op.attr("allowzero", 0):
        if source is None:
            return None
        if axis >= len(source):
            node.fail(f"entry {axis} of the target shape copies a dim that is not there")
        return source[axis]
    if isinstance(entry, int) and entry < 0:
        if entry != -1:
            node.fail(f"the target shape {_text(target)} has a negative size")
        return None
    return entry


def _text(target: Sequence[Dim | None]) -> str:
    return "[" + ", ".join("?" if t is None else str(t) for t in target) + "]"


def _left_over(node: Node, source: Shape, others: list[Dim]) -> Dim:
    above, below = cancel(source, others)
    total, rest = product(above), product(below)
    if rest == 0:
        return 0
    if isinstance(total, int) and isinstance(rest, int) and total % rest:
        node.fail(f"{product(source)} elements cannot be divided by {product(others)}")
    return floordiv(total, rest)


def _check_count(node: Node, source: Shape, sizes: Sequence[Dim | None]) -> None:
    if 0 in source and 0 in sizes:
        return  # no elements on either side, whatever the other sizes are
    if 0 in source or 0 in sizes:
        above, below = list(source), [s for s in sizes if s is not None]
    else:
        above, below = cancel(source, [s for s in sizes if s is not None])
    total, wanted = product(above), product(below)
    if total == wanted:
        return
    if isinstance(total, int) and isinstance(wanted, int):
        node.fail(f"the target shape {_text(sizes)} has another number of elements")
    node.scope.assume(total, wanted, node.op, broadcast=False)


def flatten(node: Node) -> Shapes:
    """A matrix: the sizes before ``axis``, and those from it on, multiplied up."""
    shape = node.shape(0)
    if shape is None:
        return ((None, None),)
    axis = int(node.op.attr("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        node.fail(f"axis {axis} is out of range for rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return ((product(shape[:axis]), product(shape[axis:])),)


def transpose(node: Node) -> Shapes:
    """The sizes permuted by ``perm``, which reverses by default."""
    shape = node.shape(0)
    perm = node.op.attrs.get("perm")
    if shape is None:
        return ((None,) * len(perm) if isinstance(perm, tuple) else None,)
    if not isinstance(perm, tuple):
        return (shape[::-1],)
    order = [int(str(p)) for p in perm]
    if sorted(order) != list(range(len(shape))):
        node.fail(f"perm {order} is no permutation of {len(shape)} axes")
    return (tuple(shape[p] for p in order),)


def squeeze(node: Node) -> Shapes:
    """Without the given axes, or without all of size 1."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    axes = node.ints("axes", 1)
    if axes is None:
        if node.has(1) or not all(isinstance(d, int) for d in shape):
            return (None,)
        return (tuple(d for d in shape if d != 1),)
    dropped = node.fronts(axes, len(shape))
    for axis in dropped:
        node.same(shape[axis], 1, f"axis {axis} is squeezed: its size and 1")
    return (tuple(d for i, d in enumerate(shape) if i not in dropped),)


def unsqueeze(node: Node) -> Shapes:
    """With dims of size 1 put in at the given axes of the output."""
    shape, axes = node.shape(0), node.ints("axes", 1)
    if shape is None:
        return (None,)
    if axes is None:
        count = node.items(1)
        return (None if count is None else (None,) * (len(shape) + len(count)),)
    rank = len(shape) + len(axes)
    added = node.fronts(axes, rank)
    rest = iter(shape)
    return (tuple(1 if i in added else next(rest) for i in range(rank)),)


def expand(node: Node) -> Shapes:
    """The input broadcast with the shape that the second input holds."""
    shape, target = node.shape(0), node.items(1)
    if shape is None or target is None:
        return (None,)
    rank = max(len(shape), len(target))
    padded = (1,) * (rank - len(shape)) + shape
    wanted = (1,) * (rank - len(target)) + target
    return (tuple(map(_expanded, [node] * rank, padded, wanted)),)


def _expanded(node: Node, size: Dim, wanted: Dim | None) -> Dim | None:
    if wanted is None:
        # Nothing but 1 and the size itself broadcasts with a size above 1.
        return size if isinstance(size, int) and size > 1 else None
    if isinstance(wanted, int) and wanted < 0:
        node.fail(f"the target shape has the negative size {wanted}")
    return node.broadcast_dims(size, wanted)


def tile(node: Node) -> Shapes:
    """Every size times its repeats."""
    shape, repeats = node.shape(0), node.items(1)
    if shape is None:
        return (None if repeats is None else (None,) * len(repeats),)
    if repeats is None:
        return ((None,) * len(shape),)
    if len(repeats) != len(shape):
        node.fail(f"{len(repeats)} repeats for rank {len(shape)}")
    sizes: PartialShape = tuple(
        None if r is None else d * r for d, r in zip(shape, repeats, strict=True)
    )
    return (sizes,)


def depth_to_space(node: Node) -> Shapes:
    """(N, C, H, W) to (N, C/b/b, H*b, W*b)."""
    shape, block = node.shape(0), int(node.op.attr("blocksize", 1))
    if shape is None:
        return ((None,) * 4,)
    if len(shape) != 4 or block < 1:
        node.fail("DepthToSpace needs rank 4 and a positive blocksize")
    n, c, h, w = shape
    if isinstance(c, int) and c % (block * block):
        node.fail(f"{c} channels cannot be divided by blocksize {block} squared")
    return ((n, floordiv(c, block * block), h * block, w * block),)


def space_to_depth(node: Node) -> Shapes:
    """(N, C, H, W) to (N, C*b*b, H/b, W/b)."""
    shape, block = node.shape(0), int(node.op.attr("blocksize", 1))
    if shape is None:
        return ((None,) * 4,)
    if len(shape) != 4 or block < 1:
        node.fail("SpaceToDepth needs rank 4 and a positive blocksize")
    n, c, h, w = shape
    if any(isinstance(d, int) and d % block for d in (h, w)):
        node.fail(f"height and width cannot be divided by blocksize {block}")
    return ((n, c * (block * block), floordiv(h, block), floordiv(w, block)),)


def col2im(node: Node) -> Shapes:
    """(N, C*prod(block), L) to (N, C, *image)."""
    shape, image, block = node.shape(0), node.items(1), node.items(2)
    if image is None:
        return (None,)
    if shape is None or len(shape) != 3 or block is None or None in block:
        return ((None, None, *image),)
    whole = product(b for b in block if b is not None)
    return ((shape[0], floordiv(shape[1], whole), *image),)


RULES: dict[str, Rule] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Transpose": transpose,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Col2Im": col2im,
}
