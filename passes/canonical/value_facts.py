"""What passes know of values: types, small integer contents on symbols, numbers in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Union

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.dims import Dim
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.arrays import SymbolicArray
from gecompiler.ir.infer.arrays import contents as contents_of
from gecompiler.ir.types import DType, Shape

Contents = tuple[Union[Dim, None], ...]
"""The elements of a small integer tensor, row-major; None where one is not known."""


class ValueFacts:
    """Questions about values of one graph that rules ask. All answers may be None: unknown."""

    def __init__(self, graph: Graph, contents: Mapping[str, SymbolicArray] | None = None) -> None:
        self._graph = graph
        self._contents: dict[str, SymbolicArray | None] = dict(contents or {})

    def shape(self, value: str) -> Shape | None:
        """The shape."""
        return self._graph.shape(value) if value else None

    def dtype(self, value: str) -> DType | None:
        """The element type."""
        known = self._graph.tensor(value) if value else None
        return known.dtype if known else None

    def contents(self, value: str) -> Contents | None:
        """The elements of a small tensor as dims, row-major; booleans are 0 and 1."""
        known = self.symbolic(value)
        return known.items if known else None

    def symbolic(self, value: str) -> SymbolicArray | None:
        """The contents together with the tensor's shape."""
        if not value:
            return None
        if value not in self._contents:
            constant = self._graph.constant(value)
            if constant is None:
                return None
            self._contents[value] = contents_of(constant)
        return self._contents[value]

    def learn(self, value: str, contents: SymbolicArray) -> None:
        """Records the contents of a value that a rule made."""
        self._contents[value] = contents

    def ints(self, value: str) -> tuple[int, ...] | None:
        """The elements of an integer tensor, if all are numbers."""
        known = self.contents(value)
        if known is None or not all(isinstance(d, int) for d in known):
            return None
        return tuple(d for d in known if isinstance(d, int))

    def array(self, value: str, limit: int = 1 << 20) -> Array | None:
        """The numbers of a constant in memory of at most ``limit`` elements."""
        constant = self._graph.constant(value)
        return constant.small_array(limit) if constant else None

    def uniform(self, value: str) -> int | float | bool | None:
        """The number that every element of a constant is (told apart: 0.0 and -0.0)."""
        array = self.array(value, 1 << 16)
        if array is None or array.size == 0:
            return None
        if array.dtype.kind == "V" and self._is_float(value):
            array = array.astype(np.float32)  # bfloat16 and smaller: float32 holds them all
        if array.dtype.kind not in "biuf":
            return None
        first = array.reshape(-1)[0]
        if array.size > 1 and not _all_equal(array, first):
            return None
        item: int | float | bool = first.item()
        return item

    def _is_float(self, value: str) -> bool:
        dtype = self.dtype(value)
        return dtype is not None and dtype.is_float


def _all_equal(array: Array, first: np.generic) -> bool:
    if array.dtype.kind == "f" and not np.all(np.signbit(array) == np.signbit(first)):
        return False
    return bool(np.all(array == first))
