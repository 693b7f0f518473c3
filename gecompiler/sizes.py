"""Sizes as callers of the API give them: any kind of whole number, checked and made int."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from gecompiler.ir.errors import UsageError


def whole_number(value: Any) -> int | None:
    """The int that ``value`` is (numpy's integers too, bool not), else None."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def size_of(name: str, value: Any) -> int | None:
    """A size from 1, or None as given; UsageError for anything else."""
    if value is None:
        return None
    size = whole_number(value)
    if size is None or size < 1:
        raise UsageError(f"expected a whole number from 1, found {value!r}", where=name)
    return size


def sizes_of(shapes: Any) -> dict[str, tuple[int | None, ...]]:
    """Sizes by input name; UsageError unless each is a sequence of sizes or None."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise UsageError(f"expected sizes by input name, found {shapes!r}", where="input_shapes")
    return {name: _sizes(name, sizes) for name, sizes in shapes.items()}


def _sizes(name: Any, sizes: Any) -> tuple[int | None, ...]:
    where = f"input_shapes[{name!r}]"
    iterable = isinstance(sizes, Sequence) or hasattr(sizes, "__iter__")
    if not isinstance(name, str) or not iterable or isinstance(sizes, str | bytes):
        raise UsageError(f"expected a sequence of sizes, found {sizes!r}", where=where)
    return tuple(size_of(where, size) for size in sizes)
