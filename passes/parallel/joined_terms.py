"""Results of experts that are joined, weighted and summed, written as a sum of weighted results.

    ReduceSum(Mul(Concat(a, b, ...), w))   becomes   a w[0] + b w[1] + ...
    MatMul(w, Concat(a, b, ...))           the same, of a row w or (turned round) a column

so that the terms can be shared out (`share_unrolled_experts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.unrolled import behind_all, have_weights


def number_pieces(graph: Graph, ranks: int) -> bool:
    """Looks up by number what a Split hands out one by one; whether there was such.

    Branches that read the pieces then differ by a constant, as those of a rank may.
    """
    done = False
    for op in graph.topological():
        if not op.is_("Split") or len(op.outputs) % ranks or op.inputs[0] in graph.constants:
            continue
        made, type_ = graph.tensor(op.outputs[0]), graph.tensor(op.inputs[0])
        if made is None or type_ is None or not type_.is_static or not type_.dtype.is_float:
            continue
        axis = int(op.attr("axis", 0)) % len(type_.sizes)
        if type_.sizes[axis] != len(op.outputs) or any(graph.is_output(v) for v in op.outputs):
            continue
        if not all(_size(graph, v, axis) == 1 for v in op.outputs):
            continue
        for number, value in enumerate(op.outputs):
            graph.replace_uses(value, _picked(graph, op.inputs[0], axis - len(type_.sizes), number))
        remove_dead(graph, op.outputs)
        done = True
    return done


@dataclass(frozen=True)
class _Sum:
    """A weighted sum of joined values: the op that ends it and the one that weights them.

    ``along`` is the axis that the values are joined on, ``weighs`` that of the weights, both from
    the back.
    """

    total: Op
    product: Op
    joined: Op
    weights: str
    along: int
    weighs: int


def take_sums_apart(graph: Graph, ranks: int) -> None:
    """Rewrites such sums where their terms are branches of one form that ranks can share out."""
    for total in graph.topological():
        found = _product_of(graph, total) if total.is_("MatMul") else _sum_of(graph, total)
        if found is None or len(found.joined.inputs) % ranks:
            continue
        branches = behind_all(graph, [(value,) for value in found.joined.inputs])
        if branches is not None and have_weights(graph, branches):
            _take_apart(graph, found)


def _sum_of(graph: Graph, total: Op) -> _Sum | None:
    if not total.is_("ReduceSum") or graph.is_output(total.inputs[0]):
        return None
    product = graph.producer(total.inputs[0])
    if product is None or not product.is_("Mul") or not graph.single_use(product.outputs[0]):
        return None
    made = graph.tensor(product.outputs[0])
    if made is None or not made.is_static:
        return None
    for mine, value in enumerate(product.inputs):
        joined = _ones(graph, value)
        if joined is None or graph.tensor(value) != made:
            continue
        axis = int(joined.attr("axis", 0)) % len(made.sizes)
        if _reduced(graph, total) == {f"d{axis}"}:
            back = axis - len(made.sizes)
            return _Sum(total, product, joined, product.inputs[1 - mine], back, back)
    return None


def _product_of(graph: Graph, total: Op) -> _Sum | None:
    """A product of a row of weights with joined rows, or of joined columns with a column."""
    made = graph.tensor(total.outputs[0])
    if made is None or not made.is_static or len(made.sizes) < 2:
        return None
    for mine, along in ((1, -2), (0, -1)):
        values, weights = graph.tensor(total.inputs[mine]), graph.tensor(total.inputs[1 - mine])
        joined = _ones(graph, total.inputs[mine])
        if joined is None or values is None or weights is None or not weights.is_static:
            continue
        rank = len(values.sizes)
        fits = int(joined.attr("axis", 0)) % rank == rank + along and len(weights.sizes) > 1
        if fits and weights.sizes[along] == 1:
            return _Sum(total, total, joined, total.inputs[1 - mine], along, -3 - along)
    return None


def _ones(graph: Graph, value: str) -> Op | None:
    """The Concat of single elements that a value is."""
    joined, made = graph.producer(value), graph.tensor(value)
    if joined is None or not joined.is_("Concat") or made is None or not made.is_static:
        return None
    axis = int(joined.attr("axis", 0)) % len(made.sizes)
    return joined if all(_size(graph, v, axis) == 1 for v in joined.inputs) else None


def _reduced(graph: Graph, total: Op) -> set[str]:
    """The labels that are summed."""
    try:
        return set(signature(graph, total).reduced)
    except (NoSignatureError, GraphError):
        return set()


def _size(graph: Graph, value: str, axis: int) -> int:
    type_ = graph.tensor(value)
    return type_.sizes[axis] if type_ is not None and type_.is_static else 0


def _take_apart(graph: Graph, found: _Sum) -> None:
    total, product, joined = found.total, found.product, found.joined
    type_ = graph.tensor(product.outputs[0])
    assert type_ is not None
    axis = len(type_.sizes) + found.along
    one = TensorType(
        type_.dtype, tuple(1 if n == axis else size for n, size in enumerate(type_.sizes))
    )
    added = ""
    for number, value in enumerate(joined.inputs):
        share = _picked(graph, found.weights, found.weighs, number)
        term = graph.emit(
            "Mul", [value, share], one, stem=f"{product.name}_term", info=product.info
        )
        added = (
            graph.emit("Add", [added, term], one, stem=f"{total.name}_sum", info=total.info)
            if added
            else term
        )
    last = graph.tensor(total.outputs[0])
    assert last is not None
    sizes = graph.constant_of(f"{total.name}_sizes", np.asarray(last.sizes, np.int64))
    made = graph.emit("Reshape", [added, sizes], last, stem=f"{total.name}_whole")
    if graph.is_output(total.outputs[0]):
        graph.rename_output(total.outputs[0], made)
        return
    graph.replace_uses(total.outputs[0], made)
    remove_dead(graph, total.outputs)


def _picked(graph: Graph, weight: str, axis: int, number: int) -> str:
    """The weight's part for a term; ``axis`` counts from the back, as operands broadcast."""
    type_ = graph.tensor(weight)
    assert type_ is not None
    at = len(type_.sizes) + axis
    if at < 0 or type_.sizes[at] == 1:
        return weight
    sizes = tuple(1 if n == at else size for n, size in enumerate(type_.sizes))
    index = graph.constant_of(f"{weight}_number", np.asarray([number], np.int64))
    made = TensorType(type_.dtype, sizes)
    return graph.emit("Gather", [weight, index], made, attrs={"axis": at}, stem=f"{weight}_part")
