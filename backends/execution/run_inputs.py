"""Checking the arrays that a run is given against the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.dims import Dim, Symbol, as_atom, substitute
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import DType, TensorType

Value = Any
"""A value at run time: an array, a list (sequence), a dict (map), or None (empty optional)."""


def check_inputs(graph: Graph, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The inputs as arrays of the right type, in the graph's order; UsageError names the wrong one.

    An array of a narrower type that loses nothing (int32 for int64, float16 for float32) is
    widened; any other difference of type is an error. Sizes are checked against the graph's;
    a symbol must stand for one size throughout.
    """
    for name in inputs:
        if name not in graph.inputs:
            raise UsageError(
                "the model has no such input",
                where=f"input {name!r}",
                hint=nearest(name, graph.inputs),
            )
    missing = [name for name in graph.inputs if name not in inputs]
    if missing:
        raise UsageError(
            f"missing; expected {graph.type(missing[0])}",
            where=f"input {missing[0]!r}",
            hint=f"the model takes {', '.join(graph.inputs)}",
        )
    found = {name: _converted(graph, name, inputs[name]) for name in graph.inputs}
    sized = [
        (name, type_, found[name])
        for name in graph.inputs
        if (type_ := graph.tensor(name)) is not None and type_.shape is not None
    ]
    binding = _bind_symbols(sized)
    for name, type_, array in sized:
        for axis, (dim, size) in enumerate(zip(type_.shape or (), array.shape, strict=True)):
            wanted = substitute(dim, binding)
            if isinstance(wanted, int) and wanted != size:
                _refuse(name, type_, array, f"size {wanted} at axis {axis}")
    return found


def _bind_symbols(sized: Sequence[tuple[str, TensorType, Array]]) -> dict[str, Dim]:
    """The size of every symbol that is a dim by itself, by its first occurrence."""
    binding: dict[str, Dim] = {}
    for name, type_, array in sized:
        dims = type_.shape or ()
        if len(dims) != array.ndim:
            _refuse(name, type_, array, f"{len(dims)} dims")
        for dim, size in zip(dims, array.shape, strict=True):
            atom = as_atom(dim)
            if isinstance(atom, Symbol):
                binding.setdefault(atom.name, size)
    return binding


def _converted(graph: Graph, name: str, value: Value) -> Value:
    type_ = graph.tensor(name)
    if type_ is None:
        return value
    wanted = type_.dtype
    try:
        array: Array = np.asarray(value)
        found = DType.from_numpy(array.dtype)
    except ValueError as error:
        raise UsageError(str(error), where=f"input {name!r}") from None
    if found is wanted:
        return array.astype(object) if wanted is DType.STRING else array
    same_kind = found.is_integer == wanted.is_integer and found.is_float == wanted.is_float
    plain = DType.STRING not in (found, wanted) and DType.BOOL not in (found, wanted)
    if plain and same_kind and np.can_cast(array.dtype, wanted.numpy, "safe"):
        return array.astype(wanted.numpy)
    raise UsageError(
        f"expected element type {wanted.numpy}, found {array.dtype}",
        where=f"input {name!r}",
        hint=f"only casts that lose nothing are done for you; use .astype({str(wanted.numpy)!r})",
    )


def _refuse(name: str, type_: TensorType, array: Array, what: str) -> NoReturn:
    raise UsageError(
        f"expected {what}: {type_}, found {list(array.shape)}", where=f"input {name!r}"
    )
