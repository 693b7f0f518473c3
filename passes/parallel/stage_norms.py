"""A residual norm on the border of two stages: the sum goes before it, the norm after.

The sum alone then crosses; the two addends, or the sum and its norm, would be twice as much.
"""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.block_ops import ADD_LAYER_NORM, ADD_RMS_NORM, Norm, NormInputs
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op


def is_residual_norm(op: Op) -> bool:
    """Whether the op is a sum and its norm in one."""
    return op.is_(ADD_RMS_NORM, ADD_LAYER_NORM, domain=GE_DOMAIN)


def split_norms_on_borders(graph: Graph, stage_of: dict[str, int]) -> Graph:
    """The graph with such norms in two ops, whose stages ``stage_of`` learns."""
    found = [
        (op.name, stages)
        for op in graph.ops
        if is_residual_norm(op) and (stages := _stages(graph, op, stage_of)) is not None
    ]
    if not found:
        return graph
    twin = graph.copy()
    for name, stages in found:
        _split(twin, name, stages, stage_of)
    return twin


def _stages(graph: Graph, op: Op, stage_of: dict[str, int]) -> tuple[int, int] | None:
    """The stages of the sum and of the norm, None where the op is better left whole."""
    given, own = NormInputs.of(op), stage_of[op.name]
    makers = [graph.producer(v) for v in (given.x, given.residual)]
    before = [stage_of[m.name] for m in makers if m is not None]
    if len(before) == 2 and max(before) < own:  # both addends would cross
        return max(before), own
    after = [[stage_of[u.name] for u in graph.users(v)] for v in op.outputs if v]
    if len(after) == 2 and all(users and min(users) > own for users in after):
        return own, min(after[0])  # both results would cross
    return None


def _split(graph: Graph, name: str, stages: tuple[int, int], stage_of: dict[str, int]) -> None:
    op = graph.op(name)
    given, norm = NormInputs.of(op), replace(Norm.of(op), adds=False)
    type_, first = graph.type(given.x), given.x
    if given.bias:
        first = graph.emit("Add", [first, given.bias], type_, stem=f"{name}_biased", info=op.info)
        stage_of[_maker(graph, first)] = stages[0]
    total = graph.emit("Add", [first, given.residual], type_, stem=f"{name}_sum", info=op.info)
    made = graph.emit(
        norm.op_type,
        NormInputs(total, "", given.scale, given.shift).listed(False),
        graph.type(op.outputs[0]),
        stem=f"{name}_norm",
        attrs=norm.attrs(),
        domain=GE_DOMAIN,
        info=op.info,
    )
    stage_of[_maker(graph, total)], stage_of[_maker(graph, made)] = stages
    if len(op.outputs) > 1 and op.outputs[1]:
        graph.replace_uses(op.outputs[1], total)
    graph.replace_uses(op.outputs[0], made)
    graph.remove_op(name)
    del stage_of[name]


def _maker(graph: Graph, value: str) -> str:
    maker = graph.producer(value)
    assert maker is not None
    return maker.name
