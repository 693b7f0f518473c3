"""Shapes of matrix products: MatMul and its quantised kin, Gemm, Einsum."""

from __future__ import annotations

from gecompiler.ir.dims import Dim
from gecompiler.ir.infer.node import Node, Rule, Shapes
from gecompiler.ir.types import Shape


def _product(node: Node, a: Shape | None, b: Shape | None) -> Shapes:
    return (None if a is None or b is None else product_shape(node, a, b),)


def product_shape(node: Node, a: Shape, b: Shape) -> Shape:
    """The shape of a matrix product as numpy.matmul defines it."""
    if not a or not b:
        node.fail("a matrix product needs inputs of rank 1 or more")
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    node.same(left[-1], right[-2], "the inner sizes of a matrix product")
    batch = node.broadcast([left[:-2], right[:-2]])
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


def matmul(node: Node) -> Shapes:
    """numpy.matmul: batch dims broadcast, vectors lose the dim they were given."""
    return _product(node, node.shape(0), node.shape(1))


def qlinear_matmul(node: Node) -> Shapes:
    """MatMul with scales and zero points between the two."""
    return _product(node, node.shape(0), node.shape(3))


def gemm(node: Node) -> Shapes:
    """Gives alpha * A' B' + beta * C, both matrices, C broadcast to the result one way."""
    a, b = node.shape(0), node.shape(1)
    if (a is not None and len(a) != 2) or (b is not None and len(b) != 2):
        node.fail("Gemm needs matrices")
    rows, inner_a = (None, None) if a is None else a[::-1] if node.op.attr("transA") else a
    inner_b, columns = (None, None) if b is None else b[::-1] if node.op.attr("transB") else b
    node.same(inner_a, inner_b, "the inner sizes of a matrix product")
    return ((rows, columns),)


def einsum(node: Node) -> Shapes | None:
    """Subscripts of any rank with ``...``, implicit output in alphabetical order."""
    equation = str(node.op.attr("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.op.inputs):
        node.fail(f"equation {equation!r} has {len(terms)} terms for {len(node.op.inputs)} inputs")
    sizes: dict[str, Dim | None] = {}
    ellipses: list[Shape] = []
    for index, term in enumerate(terms):
        shape = node.shape(index)
        if shape is None:
            return (None,) if "..." in equation else None
        ellipses.append(_read_term(node, term, shape, sizes))
    spread = node.broadcast(ellipses)
    if not arrow:
        once = sorted(c for c in sizes if left.count(c) == 1)
        return ((*spread, *(sizes[c] for c in once)),)
    head, dots, tail = right.partition("...")
    if any(c not in sizes for c in head + tail):
        node.fail(f"equation {equation!r} has an output subscript that no input has")
    middle = spread if dots else ()
    return ((*(sizes[c] for c in head), *middle, *(sizes[c] for c in tail)),)


def _read_term(node: Node, term: str, shape: Shape, sizes: dict[str, Dim | None]) -> Shape:
    """Notes the sizes that a term names and returns those its ellipsis covers."""
    head, dots, tail = term.partition("...")
    covered = len(shape) - len(head) - len(tail)
    if covered < 0 or (covered and not dots):
        node.fail(f"subscripts {term!r} do not fit rank {len(shape)}")
    named = [*zip(head, shape, strict=False), *zip(tail, shape[len(head) + covered :], strict=True)]
    for letter, size in named:
        known = sizes.get(letter)
        # Subscripts of size 1 broadcast, as in numpy and onnxruntime.
        sizes[letter] = size if known is None else node.broadcast_dims(known, size)
    return shape[len(head) : len(head) + covered]


RULES: dict[str, Rule] = {
    "MatMul": matmul,
    "MatMulInteger": matmul,
    "QLinearMatMul": qlinear_matmul,
    "Gemm": gemm,
    "Einsum": einsum,
}
