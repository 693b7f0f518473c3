"""Sizes that only a run can tell: estimated for planning, or as a run of the model has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gecompiler.ir.bind import bind_estimates, choose_sizes, mark_data_sized
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import DType, TensorType


def with_estimates(graph: Graph, chosen: Mapping[str, int]) -> Graph:
    """The graph with a number for every symbol that is left; itself where none is chosen.

    After all passes, so that none takes an estimate for a fact. They may have led to symbols
    that were not there before.
    """
    if not chosen:
        return graph
    left = choose_sizes(graph, diagnostics=Diagnostics()).every
    return bind_estimates(graph, {name: chosen.get(name, size) for name, size in left.items()})


def with_observed(
    graph: Graph, arrays: Mapping[str, Any], weights: int, allowed: int | None
) -> Graph:
    """The graph with the types that its values have in a run on ``arrays``.

    The run goes op after op, without schedule or plan. It may take so many bytes of the host's
    memory as are ``allowed``, None: as the bytes of ``weights`` and arrays account for. Raises
    as `run_reference` does.
    """
    from gecompiler.backends.execution.executor import run_reference
    from gecompiler.backends.execution.host_memory import HostMemory, bounded

    seen: dict[str, TensorType] = {}

    def look(name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            seen[name] = TensorType(DType.from_numpy(value.dtype), value.shape)

    with bounded(HostMemory.of(allowed, weights, arrays.values())):
        run_reference(graph, arrays, watch=look)
    twin = mark_data_sized(graph)
    for name, type_ in seen.items():
        known = twin.type(name)
        if known is None or (isinstance(known, TensorType) and not known.is_static):
            twin.set_type(name, type_)
    return twin
