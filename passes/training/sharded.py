"""Flat constants of which each replica holds a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.types import TensorType


@dataclass(frozen=True)
class Flat:
    """The data of constants one after the other, and zeros behind."""

    parts: tuple[Constant, ...]

    names: tuple[str, ...] = ()
    """Their names, for `with_constants`."""

    @staticmethod
    def constant(
        names: Sequence[str], parts: Sequence[Constant | None], kind: TensorType
    ) -> Constant:
        """The constant of that type; without data where a part has none."""
        known = tuple(p for p in parts if p is not None)
        if len(known) < len(parts):
            return Constant.absent(kind)
        return Constant(kind, source=Flat(known, tuple(names)))

    def with_constants(self, table: Mapping[str, Constant]) -> Flat:
        """The same of the constants that have these names in the table, or are made of such."""
        own = tuple(
            table.get(name, constant) for name, constant in zip(self.names, self.parts, strict=True)
        )
        return Flat(own, self.names)

    def load(self, type_: TensorType) -> Array:
        """The data."""
        found: Array = np.zeros(type_.sizes, type_.dtype.numpy)
        place = 0
        for part in self.parts:
            data = part.array().reshape(-1)
            found[place : place + data.size] = data
            place += data.size
        return found

    def describe(self) -> str:
        """For messages."""
        return f"{len(self.parts)} constants one after the other"
