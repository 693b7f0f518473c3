"""Contents of small tensors that depend on truths: comparisons, logic, Where.

A comparison is decided where it holds for every size that the symbols may stand for.
"""

from __future__ import annotations

from collections.abc import Callable

from gecompiler.ir.dim_bounds import at_least, proven_order
from gecompiler.ir.dims import Dim
from gecompiler.ir.infer.arithmetic import elementwise
from gecompiler.ir.infer.arrays import SymbolicArray
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.values import ValueRule
from gecompiler.ir.types import TensorType


def _pairwise(decide: Callable[[Dim, Dim], int | None]) -> ValueRule:
    """A rule for two inputs; where either element is unknown, so is the result."""

    def rule(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
        columns = elementwise(node, 2, type_)
        if columns is None:
            return None
        pairs = zip(*columns, strict=True)
        items = [None if a is None or b is None else decide(a, b) for a, b in pairs]
        return SymbolicArray(type_.sizes, tuple(items))

    return rule


def _equal(a: Dim, b: Dim) -> int | None:
    order = proven_order(a, b)
    return None if order is None else int(order == 0)


def _less(a: Dim, b: Dim) -> int | None:
    if at_least(b - a, 1):
        return 1
    return 0 if at_least(a - b, 0) else None


def _negated(truth: int | None) -> int | None:
    return None if truth is None else 1 - truth


def _logic(combine: Callable[[bool, bool], bool], absorbing: int) -> ValueRule:
    """And, Or: one input alone may decide."""

    def rule(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
        columns = elementwise(node, 2, type_)
        if columns is None:
            return None
        items: list[Dim | None] = []
        for a, b in zip(*columns, strict=True):
            if absorbing in (a, b):
                items.append(absorbing)
            else:
                items.append(None if a is None or b is None else int(combine(bool(a), bool(b))))
        return SymbolicArray(type_.sizes, tuple(items))

    return rule


def _not(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    if found is None:
        return None
    items = [None if i is None else int(i == 0) for i in found.items]
    return SymbolicArray(type_.sizes, tuple(items))


def _where(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    if node.value(0) is None:
        return None
    columns = elementwise(node, 3, type_)
    if columns is None:
        return None
    items = [
        a if a == b else None if c is None else a if c else b
        for c, a, b in zip(*columns, strict=True)
    ]
    return SymbolicArray(type_.sizes, tuple(items))


RULES: dict[str, ValueRule] = {
    "Equal": _pairwise(_equal),
    "Less": _pairwise(_less),
    "Greater": _pairwise(lambda a, b: _less(b, a)),
    "LessOrEqual": _pairwise(lambda a, b: _negated(_less(b, a))),
    "GreaterOrEqual": _pairwise(lambda a, b: _negated(_less(a, b))),
    "And": _logic(lambda a, b: a and b, 0),
    "Or": _logic(lambda a, b: a or b, 1),
    "Xor": _pairwise(lambda a, b: int(bool(a) != bool(b))),
    "Not": _not,
    "Where": _where,
}
