"""Where the weights of a built model come from: nowhere, or a seeded generator."""

from __future__ import annotations

import math
import zlib
from typing import Protocol

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType, tensor

MAX_RANDOM_ELEMENTS = 2**26


class Weights(Protocol):
    """Makes the constant for a weight."""

    def make(self, name: str, shape: tuple[int, ...], dtype: DType, kind: str) -> Constant:
        """The weight; ``kind`` is matrix, scale (around 1) or bias (around 0)."""


class AbsentWeights:
    """Only types: what compiling needs."""

    def make(self, name: str, shape: tuple[int, ...], dtype: DType, kind: str) -> Constant:
        """A constant without data."""
        return Constant.absent(tensor(dtype, shape))


class RandomWeights:
    """Normal numbers, the same for the same seed and name, sized so that activations stay O(1)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.left = MAX_RANDOM_ELEMENTS

    def make(self, name: str, shape: tuple[int, ...], dtype: DType, kind: str) -> Constant:
        """A constant with data; UsageError when all together grow beyond a test's size."""
        self.left -= math.prod(shape)
        if self.left < 0:
            raise UsageError(
                f"more than {MAX_RANDOM_ELEMENTS} random weights",
                where=name,
                hint="random weights are for small specs; give fewer layers, or absent weights",
            )
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        numbers = rng.standard_normal(shape, dtype=np.float32)
        if kind == "matrix":
            numbers /= math.sqrt(shape[0])
        else:
            numbers = np.float32(kind == "scale") + numbers * np.float32(0.1)
        return Constant.of(numbers, dtype)
