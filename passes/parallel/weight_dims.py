"""Where products read weights: the dims that may be cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.parallel.components import AnyPlace, ConstantUse, Place, Walker
from gecompiler.passes.parallel.signature import Region, spec_labels

PRODUCTS = ("MatMul", "Gemm", "Einsum")


def weight_dims(graph: Graph, walker: Walker, order: Sequence[Op]) -> Iterator[AnyPlace]:
    """The dims of weights that products sum over, then those that they make columns of.

    From the sum a walk finds all runs of what is gated by its other half. Weights are constants,
    and rows that are looked up in one.
    """
    for summed in (True, False):
        for op in order:
            yield from _of_product(graph, walker, op, summed)


def _of_product(graph: Graph, walker: Walker, op: Op, summed: bool) -> Iterator[AnyPlace]:
    found = walker.signature(op) if op.is_(*PRODUCTS) else None
    if found is None or len(op.inputs) < 2:
        return
    for i, value in enumerate(op.inputs[:2]):
        operand, constant = found.inputs[i], value in graph.constants
        if operand is None or not (constant or _is_looked_up(graph, value)):
            continue
        other = {k for spec in found.inputs[1 - i] or () for k in spec_labels(spec)}
        wanted = set(found.reduced) if summed else set(found.sizes) - other
        for dim, spec in enumerate(operand):
            labels = tuple(spec_labels(spec))
            if len(labels) == 1 and labels[0] in wanted:
                region = Region.all_of(found.sizes[labels[0]])
                use = ConstantUse(op.name, i, dim, region)
                yield use if constant else Place(value, dim, region)


def _is_looked_up(graph: Graph, value: str) -> bool:
    maker = graph.producer(value)
    return (
        maker is not None
        and maker.is_("Gather", "GatherND")
        and maker.inputs[0] in graph.constants
        and len(graph.constants[maker.inputs[0]].type.sizes) > 2
    )


def stacks(graph: Graph, walker: Walker, order: Sequence[Op]) -> Iterator[ConstantUse]:
    """The dims of constants that batched products go along: each element is a matrix."""
    for op in order:
        found = walker.signature(op) if op.is_("MatMul", "Einsum") else None
        if found is None:
            continue
        made = {k for o in found.outputs for spec in o or () for k in spec_labels(spec)}
        for i, (value, operand) in enumerate(zip(op.inputs, found.inputs, strict=True)):
            if value not in graph.constants or operand is None or len(operand) < 3:
                continue
            for dim, spec in enumerate(operand[:-2]):
                labels = tuple(spec_labels(spec))
                if len(labels) == 1 and labels[0] in made:
                    yield ConstantUse(op.name, i, dim, Region.all_of(found.sizes[labels[0]]))
