"""Putting numbers for symbols into a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gecompiler.ir.bind.tensor_bytes import check_tensor_bytes
from gecompiler.ir.dims import DimError
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.ir.types import TensorType, ValueType


def bind(graph: Graph, binding: Mapping[str, int]) -> Graph:
    """A copy of the graph, bodies included, in which symbols have become numbers.

    Types are inferred again, so that sizes which do not go together are a ModelError naming
    the node; so are tensors that no device could hold. Symbols that ``binding`` leaves out stay.
    """
    bound = _bound(graph, dict(binding), {})
    infer_types(bound)
    check_tensor_bytes(bound)
    return bound


def bind_estimates(graph: Graph, estimates: Mapping[str, int]) -> Graph:
    """As `bind`, for sizes that only a run can tell.

    The ops that read or make values of such sizes are marked (`OpInfo.data_sized`): their types
    say what to plan for, and nothing may be computed from them.
    """
    return bind(mark_data_sized(graph), estimates)


def mark_data_sized(graph: Graph) -> Graph:
    """A copy in which every op is marked that has a value whose sizes are not all numbers.

    So are those in bodies.
    """
    twin = graph.copy()
    for op in graph.ops:
        made = op.with_bodies(mark_data_sized)
        if any(_is_open(graph.type(v)) for v in (*op.inputs, *op.outputs) if v):
            made = made.with_(info=replace(op.info, data_sized=True))
        if made is not op:
            twin.replace_op(op.name, made)
    return twin


def _is_open(type_: ValueType) -> bool:
    return type_ is None or (isinstance(type_, TensorType) and not type_.is_static)


def _bound(graph: Graph, binding: Mapping[str, int], memo: dict[ValueType, ValueType]) -> Graph:
    twin = graph.copy()
    for value in graph.values:
        if value in graph.constants:
            continue
        type_ = graph.type(value)
        if type_ not in memo:
            memo[type_] = _bound_type(graph, value, type_, binding)
        if memo[type_] is not type_:
            twin.set_type(value, memo[type_])
    for op in graph.ops:
        if op.attrs and op.bodies:
            twin.replace_op(op.name, op.with_bodies(lambda body: _bound(body, binding, memo)))
    return twin


def _bound_type(
    graph: Graph, value: str, type_: ValueType, binding: Mapping[str, int]
) -> ValueType:
    if type_ is None:
        return None
    try:
        return type_.bind(binding)
    except DimError as error:
        maker = graph.producer(value)
        where = f"input {value!r}" if maker is None else f"node {maker.name!r} ({maker.kind})"
        sizes = ", ".join(f"{n} = {binding[n]}" for n in sorted(type_.symbols() & binding.keys()))
        raise ModelError(
            f"{value!r} is {type_}, which cannot be with {sizes}: {error.message}",
            where=where,
            hint="choose other sizes: --batch, --seq or --input-shape",
        ) from None
