"""Shapes of ops that pick elements by index or by content."""

from __future__ import annotations

from gecompiler.ir.dim_bounds import largest, smallest
from gecompiler.ir.dims import Dim, product
from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes


def gather(node: Node) -> Shapes:
    """The indices' shape in place of the axis."""
    data, indices = node.shape(0), node.shape(1)
    if data is None or indices is None:
        return (None,)
    axis = node.axis(len(data))
    return ((*data[:axis], *indices, *data[axis + 1 :]),)


def gather_elements(node: Node) -> Shapes:
    """The indices' shape."""
    return (node.shape(1),)


def gather_nd(node: Node) -> Shapes:
    """Leading dims of the indices, then what of the data the last one does not reach."""
    data, indices = node.shape(0), node.shape(1)
    if data is None or indices is None:
        return (None,)
    if not indices or not isinstance(indices[-1], int):
        return (None,)
    reached = int(node.op.attr("batch_dims", 0)) + indices[-1]
    if reached > len(data):
        node.fail(f"indices reach {reached} axes of rank {len(data)}")
    return ((*indices[:-1], *data[reached:]),)


def one_hot(node: Node) -> Shapes:
    """A new axis of ``depth`` among those of the indices."""
    indices = node.shape(0)
    if indices is None:
        return (None,)
    axis = node.axis(len(indices) + 1, -1)
    return ((*indices[:axis], node.scalar(1), *indices[axis:]),)


def non_zero(node: Node) -> Shapes:
    """(rank, number of elements that are not zero)."""
    shape = node.shape(0)
    if shape is None:
        return ((None, None),)
    found = node.value(0)
    # numpy and onnxruntime take a scalar as one element of rank 1.
    rank = max(len(shape), 1)
    if found is not None and found.numbers is not None:
        return ((rank, sum(1 for n in found.numbers if n)),)
    return ((rank, node.fresh(0, 1, product(shape))),)


def compress(node: Node) -> Shapes:
    """As many along the axis (or of all elements) as the condition is true."""
    data, condition = node.shape(0), node.value(1)
    flat = "axis" not in node.op.attrs
    if data is None:
        return ((None,) if flat else None,)
    axis = 0 if flat else node.axis(len(data))
    whole = product(data) if flat else data[axis]
    count: Dim | None = None
    if condition is not None and condition.numbers is not None:
        count = sum(1 for n in condition.numbers if n)
    if count is None:
        count = node.fresh(0, axis, whole)
    return ((count,) if flat else (*data[:axis], count, *data[axis + 1 :]),)


def unique(node: Node) -> Shapes:
    """Distinct elements (or slices), their first indices, the inverse, and how often."""
    data = node.shape(0)
    if data is None:
        return (None if "axis" in node.op.attrs else (None,), (None,), (None,), (None,))[
            : len(node.op.outputs)
        ]
    flat = "axis" not in node.op.attrs
    axis = 0 if flat else node.axis(len(data))
    whole = product(data) if flat else data[axis]
    count = node.fresh(0, axis, whole)
    first: PartialShape = (count,) if flat else (*data[:axis], count, *data[axis + 1 :])
    return (first, (count,), (whole,), (count,))[: len(node.op.outputs)]


def top_k(node: Node) -> Shapes:
    """Values and indices with ``k`` along the axis."""
    shape, count = node.shape(0), len(node.op.outputs)
    if shape is None:
        return (None,) * count
    axis = node.axis(len(shape), -1)
    given = node.op.attrs.get("k")
    k = given if isinstance(given, int) else node.scalar(1)
    size = shape[axis]
    if isinstance(k, int) and isinstance(size, int) and k > size:
        node.fail(f"k is {k}, axis {axis} has {size}")
    if k is None:
        k = node.fresh(0, axis, size)
    return ((*shape[:axis], k, *shape[axis + 1 :]),) * count


def non_max_suppression(node: Node) -> Shapes:
    """(selected, 3): at most so many boxes of each class and batch."""
    scores, most = node.shape(1), node.scalar(2)
    if scores is None or len(scores) != 3:
        return ((None, 3),)
    if not node.has(2) or most == 0:
        return ((0, 3),)
    batches, classes, boxes = scores
    each = boxes if most is None else smallest(boxes, largest(most, 0))
    return ((node.fresh(0, 0, batches * classes * each), 3),)


def string_normalizer(node: Node) -> Shapes:
    """The strings that are no stop words: (n,), or (1, n)."""
    shape = node.shape(0)
    if shape is None:
        return (None,)
    if len(shape) not in (1, 2):
        node.fail("StringNormalizer needs rank 1 or 2")
    return ((*shape[:-1], node.fresh(0, len(shape) - 1, largest(shape[-1], 1))),)


RULES: dict[str, Rule] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "NonZero": non_zero,
    "Compress": compress,
    "Unique": unique,
    "TopK": top_k,
    "NonMaxSuppression": non_max_suppression,
    "StringNormalizer": string_normalizer,
}
