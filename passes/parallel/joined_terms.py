"""Results of experts that are joined, weighted and summed, written as a sum of weighted results.

    ReduceSum(Mul(Concat(a, b, ...), w))   becomes   a w[0] + b w[1] + ...

so that the terms can be shared out (`share_unrolled_experts`).
"""

from __future__ import annotations

import numpy as np

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.attention.remove import remove_dead
from gecompiler.passes.parallel.dim_rules import signature
from gecompiler.passes.parallel.dim_site import NoSignatureError
from gecompiler.passes.parallel.unrolled import behind_all, have_weights


def take_sums_apart(graph: Graph, ranks: int) -> None:
    """Rewrites such sums where their terms are branches of one form that ranks can share out."""
    for total in graph.topological():
        joined = _joined(graph, total)
        if joined is None or len(joined.inputs) % ranks:
            continue
        branches = behind_all(graph, [(value,) for value in joined.inputs])
        if branches is not None and have_weights(graph, branches):
            _take_apart(graph, total, joined)


def _joined(graph: Graph, total: Op) -> Op | None:
    """The Concat of single elements whose weighted sum an op is."""
    if not total.is_("ReduceSum") or graph.is_output(total.inputs[0]):
        return None
    product = graph.producer(total.inputs[0])
    if product is None or not product.is_("Mul") or not graph.single_use(product.outputs[0]):
        return None
    made = graph.tensor(product.outputs[0])
    if made is None or not made.is_static:
        return None
    for value in product.inputs:
        joined = graph.producer(value)
        if joined is None or not joined.is_("Concat") or graph.tensor(value) != made:
            continue
        axis = int(joined.attr("axis", 0)) % len(made.sizes)
        ones = all(_size(graph, v, axis) == 1 for v in joined.inputs)
        if ones and _reduced(graph, total) == {f"d{axis}"}:
            return joined
    return None


def _reduced(graph: Graph, total: Op) -> set[str]:
    """The labels that are summed."""
    try:
        return set(signature(graph, total).reduced)
    except (NoSignatureError, GraphError):
        return set()


def _size(graph: Graph, value: str, axis: int) -> int:
    type_ = graph.tensor(value)
    return type_.sizes[axis] if type_ is not None and type_.is_static else 0


def _take_apart(graph: Graph, total: Op, joined: Op) -> None:
    product = graph.producer(total.inputs[0])
    type_ = graph.tensor(total.inputs[0])
    assert product is not None
    assert type_ is not None
    axis = int(joined.attr("axis", 0)) % len(type_.sizes)
    mine = product.inputs.index(joined.outputs[0])
    weight = product.inputs[1 - mine]
    one = TensorType(
        type_.dtype, tuple(1 if n == axis else size for n, size in enumerate(type_.sizes))
    )
    found = ""
    for number, value in enumerate(joined.inputs):
        share = _picked(graph, weight, axis - len(type_.sizes), number)
        term = graph.emit(
            "Mul", [value, share], one, stem=f"{product.name}_term", info=product.info
        )
        found = (
            graph.emit("Add", [found, term], one, stem=f"{total.name}_sum", info=total.info)
            if found
            else term
        )
    last = graph.tensor(total.outputs[0])
    assert last is not None
    sizes = graph.constant_of(f"{total.name}_sizes", np.asarray(last.sizes, np.int64))
    made = graph.emit("Reshape", [found, sizes], last, stem=f"{total.name}_whole")
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
