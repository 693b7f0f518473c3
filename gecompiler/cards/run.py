"""A model that was compiled for several cards, run with real numbers on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gecompiler.backends.execution.ranks import run_ranks
from gecompiler.backends.execution.run_inputs import check_inputs
from gecompiler.cards.names import own_name
from gecompiler.ir.dims import substitute
from gecompiler.ir.types import TensorType

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.ir.graph import Graph


def run_cards(
    graph: Graph, binding: Mapping[str, int], cards: CardsResult, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole model's outputs from its inputs, computed by all ranks in this process.

    ``graph`` has the model's symbols, ``binding`` their numbers. The batch goes through a
    pipeline in micro-batches, cut and joined along the axes that depend on it.
    """
    given = check_inputs(graph, inputs)
    if cards.shape is None:
        return run_ranks(cards.program, given)
    parts = cards.shape.micro_batches
    names = {n for t in cards.program.templates for n in t.inputs}
    local: dict[str, Any] = {}
    for name in sorted(names):
        value, number, _ = own_name(name, cards.shape)
        axis = batch_axis(graph, value, binding, cards.batch_symbols)
        whole = given[value]
        local[name] = whole if axis is None else np.split(whole, parts, axis)[number]
    found = run_ranks(cards.program, local)
    by_value: dict[str, dict[int, Any]] = {}
    for name, array in found.items():
        value, number, _ = own_name(name, cards.shape)
        by_value.setdefault(value, {})[number] = array
    return {name: _joined(graph, name, binding, cards, by_value[name]) for name in graph.outputs}


def _joined(
    graph: Graph,
    name: str,
    binding: Mapping[str, int],
    cards: CardsResult,
    parts: Mapping[int, Any],
) -> Any:
    axis = batch_axis(graph, name, binding, cards.batch_symbols)
    in_order = [parts[number] for number in sorted(parts)]
    return in_order[0] if axis is None else np.concatenate(in_order, axis)


def batch_axis(
    graph: Graph, value: str, binding: Mapping[str, int], batch: tuple[str, ...]
) -> int | None:
    """The axis whose size grows with the batch, None where none does."""
    type_ = graph.type(value)
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    double = {**binding, **{name: 2 * binding[name] for name in batch}}
    for axis, dim in enumerate(type_.shape):
        if substitute(dim, binding) != substitute(dim, double):
            return axis
    return None
