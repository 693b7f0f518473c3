"""What callers hand to a run, as arrays: lists take the input's element type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import DType


def as_arrays(graph: Graph, inputs: Mapping[Any, Any]) -> dict[str, Any]:
    """The inputs by name, lists and foreign byte orders converted; UsageError names what cannot be.

    What has an element type of its own keeps it; whether it fits is the executor's to say.
    """
    for name in inputs:
        if not isinstance(name, str):
            raise UsageError(f"expected the name of an input, found {name!r}", where="forward")
    return {name: _as_array(graph, name, value) for name, value in inputs.items()}


def _as_array(graph: Graph, name: str, value: Any) -> Any:
    type_ = graph.tensor(name) if graph.has_value(name) else None
    if type_ is None:
        return value
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if hasattr(value, "dtype") or type_.dtype is DType.STRING:
        return value
    try:
        return np.asarray(value, dtype=type_.dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(
            f"no {type_} can be made of it: {error}", where=f"input {name!r}"
        ) from None
