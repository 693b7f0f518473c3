"""Tensors that no device can hold are refused before anything is planned for them."""

from __future__ import annotations

from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import TensorType

MAX_TENSOR_BYTES = 2**48
"""A quarter of a petabyte: far beyond any device, and products with it stay within 64 bits."""
MAX_TOTAL_BYTES = 2**56


def check_tensor_bytes(graph: Graph) -> None:
    """ModelError for a tensor larger than `MAX_TENSOR_BYTES`, in the graph or its bodies.

    All together must stay within `MAX_TOTAL_BYTES`. Sizes that are open count nothing.
    """
    total = 0
    graphs = [graph]
    while graphs:
        inner = graphs.pop()
        for value in inner.values:
            type_ = inner.type(value)
            if isinstance(type_, TensorType) and type_.is_static:
                total += type_.bytes
                if type_.bytes > MAX_TENSOR_BYTES or total > MAX_TOTAL_BYTES:
                    raise _too_large(inner, value, type_)
        for op in inner.ops:
            if op.attrs:
                graphs.extend(op.bodies)


def _too_large(graph: Graph, value: str, type_: TensorType) -> ModelError:
    maker = graph.producer(value)
    where = f"value {value!r}" if maker is None else f"node {maker.name!r} ({maker.kind})"
    return ModelError(
        f"{value!r} is {type_}: {type_.bytes} bytes, more than any device holds",
        where=where,
        hint="choose smaller sizes (--batch, --seq, --input-shape), or correct the model's",
    )
