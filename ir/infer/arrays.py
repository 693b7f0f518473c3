"""What is known of the contents of small tensors: their elements as dims."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, Expr, symbols
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.types import DType, TensorType

LIMIT = 64
"""Tensors with more elements are not followed: they hold data, not sizes."""

_LONGEST = 128
"""Expressions of more atoms are no sizes, but some other arithmetic; they are not followed."""

_INTEGER_RANGE = {
    DType.U8: (0, 2**8 - 1),
    DType.I8: (-(2**7), 2**7 - 1),
    DType.U16: (0, 2**16 - 1),
    DType.I16: (-(2**15), 2**15 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.I32: (-(2**31), 2**31 - 1),
    DType.U64: (0, 2**64 - 1),
    DType.I64: (-(2**63), 2**63 - 1),
    DType.BOOL: (0, 1),
    DType.F16: (-(2**11), 2**11),
    DType.BF16: (-(2**8), 2**8),
    DType.F32: (-(2**24), 2**24),
    DType.F64: (-(2**53), 2**53),
}
"""The integers that a type holds exactly, every one between the two."""

_HOLDS_SYMBOLS = frozenset({DType.I32, DType.U32, DType.I64, DType.U64, DType.F32, DType.F64})
"""Types wide enough for any size that a tensor of a runnable model has."""


@dataclass(frozen=True, slots=True)
class SymbolicArray:
    """A small tensor's contents in row-major order; None where an element is not known.

    Booleans are 0 and 1; elements of a floating-point tensor are known where they are integers.
    """

    shape: tuple[int, ...]
    items: tuple[Dim | None, ...]

    @property
    def is_known(self) -> bool:
        """Whether every element is known, as a number or an expression."""
        return None not in self.items

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The elements when all are numbers, else None."""
        found = tuple(item for item in self.items if isinstance(item, int))
        return found if len(found) == len(self.items) else None

    def symbols(self) -> set[str]:
        """The names of all symbols in the elements."""
        return {name for item in self.items if isinstance(item, Expr) for name in symbols(item)}

    def objects(self) -> Any:
        """The elements as a numpy array of objects, for moving them about."""
        array = np.empty(len(self.items), dtype=object)
        array[:] = self.items
        return array.reshape(self.shape)

    @staticmethod
    def of_objects(array: Any) -> SymbolicArray:
        """The inverse of `objects`."""
        found = np.asarray(array, dtype=object)
        return SymbolicArray(found.shape, tuple(found.reshape(-1).tolist()))

    @staticmethod
    def unknown(shape: tuple[int, ...]) -> SymbolicArray:
        """An array of which nothing is known but the shape."""
        return SymbolicArray(shape, (None,) * math.prod(shape))

    def __str__(self) -> str:
        inner = ", ".join("?" if item is None else str(item) for item in self.items)
        return f"[{inner}]" if self.shape else inner


def fits(item: Dim | None, dtype: DType) -> Dim | None:
    """The element if the type holds it without loss, else None.

    A number must lie in the type's exact range. An expression needs a type wide enough for
    sizes; in float32 it must be of degree 1 besides, since products pass 2**24.
    """
    if isinstance(item, int):
        low, high = _INTEGER_RANGE[dtype]
        return item if low <= item <= high else None
    if item is None or dtype not in _HOLDS_SYMBOLS or item.atoms > _LONGEST:
        return None
    if dtype is DType.F32 and any(sum(p for _, p in m) > 1 for m, _ in item.terms):
        return None
    return item


def carries_values(type_: TensorType | None) -> bool:
    """Whether the contents of tensors of this type are followed."""
    if type_ is None or type_.shape is None or type_.dtype not in _INTEGER_RANGE:
        return False
    count = 1
    for size in type_.shape:
        if not isinstance(size, int):
            return False
        count *= size
    return count <= LIMIT


def known(shape: tuple[int, ...], items: Iterable[Dim | None], dtype: DType) -> SymbolicArray:
    """An array of that type; elements that the type cannot hold exactly are unknown."""
    return SymbolicArray(shape, tuple(fits(item, dtype) for item in items))


def contents(constant: Constant) -> SymbolicArray | None:
    """The contents of a small constant, None where its data is not there.

    Small integers are read from their file, since shapes depend on them.
    """
    if not carries_values(constant.type):
        return None
    if constant.type.dtype.is_float:
        if constant.data is None:
            return None
        numbers = [_integer(float(x)) for x in constant.data.reshape(-1).tolist()]
        return known(constant.type.sizes, numbers, constant.type.dtype)
    try:
        items = constant.array().reshape(-1).tolist()
    except MissingDataError:
        return None
    return SymbolicArray(constant.type.sizes, tuple(map(int, items)))


def _integer(number: float) -> int | None:
    return int(number) if math.isfinite(number) and number == int(number) else None
