"""Constant tensors, whose data may be here, in a file, or nowhere.

Sizes are enough to compile, so data is read only when numbers are asked for. A weight-free
model has constants without data; asking one for its array raises `MissingDataError`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.types import DType, TensorType

Array = np.ndarray  # of any dtype, unpacked: one element per item also for 4-bit types


class DataSource(Protocol):
    """Where the data of a constant lies when it is not in memory."""

    def load(self, type_: TensorType) -> Array:
        """The array; raises MissingDataError with the file and what was expected."""

    def describe(self) -> str:
        """A few words for messages and the text form."""


@dataclass(frozen=True, eq=False)
class Constant:
    """An immutable tensor: its static type, and its data, a source for it, or neither."""

    type: TensorType
    data: Array | None = None
    source: DataSource | None = None
    computed: bool = False
    """Whether it follows from sizes and numbers alone, so that it is no weight of the model."""

    @staticmethod
    def of(array: object, dtype: DType | None = None) -> Constant:
        """A constant holding ``array`` (anything numpy takes); not to be written to after.

        Strings become Python objects, other byte orders the machine's; ValueError for a numpy
        type that ONNX has none for.
        """
        value = np.asarray(array)
        wanted = dtype.numpy if dtype else DType.from_numpy(value.dtype).numpy
        if value.dtype != wanted or not value.dtype.isnative:
            value = value.astype(wanted)
        value = value.view()
        value.flags.writeable = False
        return Constant(TensorType(dtype or DType.from_numpy(wanted), value.shape), value)

    @staticmethod
    def absent(type_: TensorType) -> Constant:
        """A constant of which only the type is known."""
        return Constant(type_)

    @property
    def has_data(self) -> bool:
        """Whether the data is in memory."""
        return self.data is not None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.type.sizes)

    def array(self) -> Array:
        """The data, read from its source where needed; MissingDataError when there is none."""
        if self.data is not None:
            return self.data
        if self.source is None:
            raise MissingDataError(
                f"the data of a {self.type} constant is absent",
                hint="compiling needs only sizes; running needs the model with its weights",
            )
        return self.source.load(self.type)

    def small_array(self, limit: int = 1024) -> Array | None:
        """The data if it is in memory and has at most ``limit`` elements, else None."""
        return self.data if self.data is not None and self.data.size <= limit else None

    def scalar(self) -> float | int | bool | None:
        """The value of a one-element real, integer or bool constant in memory, else None."""
        if self.data is None or self.data.size != 1 or not self.type.dtype.is_real:
            return None
        item: float | int | bool = self.data.reshape(-1)[0].item()
        return item

    @cached_property
    def digest(self) -> str | None:
        """A hash of type and data for comparing constants; None without data in memory."""
        if self.data is None:
            return None
        if self.type.dtype is DType.STRING:
            raw = repr(self.data.tolist()).encode()
        else:
            raw = np.ascontiguousarray(self.data).tobytes()
        return hashlib.blake2b(str(self.type).encode() + b"\0" + raw, digest_size=16).hexdigest()


def within(folder: Path, name: str) -> Path:
    """The path of ``name`` inside ``folder``; MissingDataError when it would leave it.

    A model file names its data files; nothing it says may reach outside its own folder,
    be it by ``..``, an absolute path, or a link.
    """
    root = folder.resolve()
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a name no file can have
        path = root
    if path == root or Path(name).is_absolute() or not path.is_relative_to(root):
        raise MissingDataError(
            f"external data file {name!r} lies outside the model's folder",
            where=str(folder),
            hint="external data must lie beside the model; move it there and fix the location",
        )
    return path
