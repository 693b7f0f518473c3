"""Ops that treat every row (the last axis) alike: they may go before or after a Transpose.

A Transpose (0, 2, 1, 3) turns (B, N, S, D) into (B, S, N, D) and moves whole rows. What works
within rows gives the same either way, if tables that go by position are turned with it. The
kernels take both: RotaryPositionEmbedding has X as BNSD with tables 11SD or B1SD and as BSND with
1S1D or BS1D (op-plugin, npu_rotary_position_embedding); norms only see the last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.block_ops import LAYER_NORM, RMS_NORM, ROTARY_EMBEDDING, Norm, NormInputs
from gecompiler.ir.flash_attention import exchanged
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import Shape

_RANK = 4


def row_inputs(graph: Graph, op: Op) -> tuple[int, ...] | None:
    """Which inputs are turned where the outputs are; None for an op that minds, or may mind."""
    rule = _RULES.get(op.kind)
    found = None if rule is None else rule(graph, op)
    if found is None:
        return None
    values = (*(op.inputs[n] for n in found), *op.outputs)
    shapes = [graph.shape(value) for value in values if value]
    return found if all(s is not None and len(s) == _RANK for s in shapes) else None


def row_tables(op: Op) -> tuple[int, ...]:
    """Which inputs are tables that broadcast to the data."""
    return (1, 2) if op.is_(ROTARY_EMBEDDING, domain=GE_DOMAIN) else ()


def turned_table(shape: Shape) -> Shape | None:
    """The shape of a table, right-aligned to (B, N, S, D), for (B, S, N, D).

    None where that is no view: it differs both by head and by position.
    """
    if len(shape) > _RANK:
        return None
    batch, heads, rows, last = (1,) * (_RANK - len(shape)) + tuple(shape)
    if heads != 1 and rows != 1:
        return None
    if heads == 1 and rows == 1:
        return tuple(shape)
    turned = exchanged((batch, heads, rows, last))
    return turned if len(shape) == _RANK else turned[1:]


def _rotary(graph: Graph, op: Op) -> tuple[int, ...] | None:
    tables = [graph.shape(op.inputs[n]) for n in row_tables(op)]
    return (0,) if all(s is not None and turned_table(s) is not None for s in tables) else None


def _norm(graph: Graph, op: Op) -> tuple[int, ...] | None:
    inputs = NormInputs.of(op)
    scales = [graph.shape(value) for value in (inputs.scale, inputs.shift) if value]
    rows_alike = all(s is not None and all(dim == 1 for dim in s[:-1]) for s in scales)
    return (0,) if rows_alike and _is_last(Norm.of(op).axis) else None


def _cast(graph: Graph, op: Op) -> tuple[int, ...]:
    return (0,)


def _split(graph: Graph, op: Op) -> tuple[int, ...] | None:
    return (0,) if _is_last(op.attr("axis", 0)) else None


def _concat(graph: Graph, op: Op) -> tuple[int, ...] | None:
    return tuple(range(len(op.inputs))) if _is_last(op.attr("axis", 0)) else None


def _expand(graph: Graph, op: Op) -> tuple[int, ...] | None:
    """The sizes it grows to have to be numbers, which are then turned."""
    sizes = graph.shape(op.outputs[0]) or (None,)
    return (0,) if all(isinstance(dim, int) for dim in sizes) else None


def _slice(graph: Graph, op: Op) -> tuple[int, ...] | None:
    constant = graph.constant(op.input(3)) if op.input(3) else None
    data = constant.data if constant is not None else None
    axes = op.attr("axes") if data is None else data.reshape(-1).tolist()
    return (0,) if axes and all(map(_is_last, axes)) else None


def _is_last(axis: object) -> bool:
    return axis in (-1, _RANK - 1)


_RULES: Mapping[str, Callable[[Graph, Op], tuple[int, ...] | None]] = {
    f"{GE_DOMAIN}.{ROTARY_EMBEDDING}": _rotary,
    f"{GE_DOMAIN}.{RMS_NORM}": _norm,
    f"{GE_DOMAIN}.{LAYER_NORM}": _norm,
    "Cast": _cast,
    "Concat": _concat,
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
}
