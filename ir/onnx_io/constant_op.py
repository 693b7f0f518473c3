"""``Constant`` ops, which become constants of the graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.op import Attr
from gecompiler.ir.types import DType

_KINDS: dict[str, DType | None] = {
    "value": None,
    "sparse_value": None,
    "value_float": DType.F32,
    "value_floats": DType.F32,
    "value_int": DType.I64,
    "value_ints": DType.I64,
    "value_string": DType.STRING,
    "value_strings": DType.STRING,
}


def constant_of_op(attrs: Mapping[str, Attr], where: str) -> Constant:
    """The constant that a Constant op with these attributes makes; ModelError when unclear."""
    if len(attrs) != 1 or next(iter(attrs)) not in _KINDS:
        found = ", ".join(attrs) or "none"
        raise ModelError(
            f"a Constant has one attribute of {', '.join(_KINDS)}; found: {found}", where=where
        )
    name, value = next(iter(attrs.items()))
    dtype = _KINDS[name]
    if isinstance(value, Constant) and dtype is None:
        return value
    items = value if isinstance(value, tuple) else (value,)
    if dtype is None or isinstance(value, tuple) != name.endswith("s") or not _fits(items, dtype):
        raise ModelError(f"attribute {name!r} of a Constant is of the wrong kind", where=where)
    array = np.empty(len(items), dtype.numpy)
    array[:] = items
    return Constant.of(array if isinstance(value, tuple) else array.reshape(()), dtype)


def _fits(items: tuple[object, ...], dtype: DType) -> bool:
    if dtype is DType.STRING:
        return all(isinstance(item, (str, bytes)) for item in items)
    return all(isinstance(item, float if dtype is DType.F32 else int) for item in items)
