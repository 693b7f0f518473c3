"""Calls that are asked about with shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType
from gecompiler.ops.request import Request

MOST_BLOCKS = 1 << 24
"""Blocks of queries, or of keys, that are counted: each costs the host some microseconds."""


def shaped(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """An array of that shape of which one element is stored."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def shaped_arrays(
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int] | None,
    dtype: DTypeLike,
    where: str,
) -> tuple[Array, Array, Array]:
    """Query, key and value of these shapes (default of the value: the key's); see `shaped`."""
    kind = element_type(dtype, where)
    shapes = (query, key, key if value is None else value)
    return tuple(_checked(shape, kind, where) for shape in shapes)  # type: ignore[return-value]


def check_countable(request: Request, where: str) -> None:
    """UsageError for sequences of so many blocks that counting would not end."""
    for piece in request.pieces:
        q, k = piece.q.shape[2], piece.k.shape[2]
        if max(-(-q // request.blocks.queries), -(-k // request.blocks.keys)) > MOST_BLOCKS:
            raise UsageError(
                f"{q} queries and {k} keys are more than {MOST_BLOCKS} blocks",
                where=where,
                hint="larger blocks (block_size_q, block_size_k), or shorter sequences",
            )


def element_type(dtype: DTypeLike, where: str) -> np.dtype[np.generic]:
    """A float type of numpy, also by ONNX's names such as ``bf16``."""
    by_name = {name: d for d in DType for name in (d.short, d.value[3])}
    try:
        known = isinstance(dtype, str) and dtype in by_name
        found = by_name[str(dtype)].numpy if known else np.dtype(dtype)
        if DType.from_numpy(found).is_float:
            return found
    except (TypeError, ValueError):
        pass
    raise UsageError(
        f"dtype must be a float type, found {dtype!r}", where=where, hint="float16 or bfloat16"
    )


def _checked(shape: Any, kind: np.dtype[np.generic], where: str) -> Array:
    try:
        dims = tuple(shape)
        if all(isinstance(n, int | np.integer) and n >= 0 for n in dims):
            return shaped(dims, kind)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(
        f"a shape must be of whole numbers of at least 0, as an array can have; found {shape!r}",
        where=where,
    )
