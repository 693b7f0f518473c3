"""Element types and the types of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Union

import numpy as np

from gecompiler.ir.dims import Dim, product, substitute, symbols

Shape = tuple[Dim, ...]

MAX_RANK = 64
"""Axes of a tensor from a file: as many as numpy takes."""


class DType(Enum):
    """An ONNX element type: (short name, TensorProto code, bits, numpy or ml_dtypes name)."""

    F32 = ("f32", 1, 32, "float32")
    U8 = ("u8", 2, 8, "uint8")
    I8 = ("i8", 3, 8, "int8")
    U16 = ("u16", 4, 16, "uint16")
    I16 = ("i16", 5, 16, "int16")
    I32 = ("i32", 6, 32, "int32")
    I64 = ("i64", 7, 64, "int64")
    STRING = ("string", 8, 128, "object")
    BOOL = ("bool", 9, 8, "bool")
    F16 = ("f16", 10, 16, "float16")
    F64 = ("f64", 11, 64, "float64")
    U32 = ("u32", 12, 32, "uint32")
    U64 = ("u64", 13, 64, "uint64")
    C64 = ("c64", 14, 64, "complex64")
    C128 = ("c128", 15, 128, "complex128")
    BF16 = ("bf16", 16, 16, "bfloat16")
    F8E4M3FN = ("f8e4m3fn", 17, 8, "float8_e4m3fn")
    F8E4M3FNUZ = ("f8e4m3fnuz", 18, 8, "float8_e4m3fnuz")
    F8E5M2 = ("f8e5m2", 19, 8, "float8_e5m2")
    F8E5M2FNUZ = ("f8e5m2fnuz", 20, 8, "float8_e5m2fnuz")
    U4 = ("u4", 21, 4, "uint4")
    I4 = ("i4", 22, 4, "int4")
    F4E2M1 = ("f4e2m1", 23, 4, "float4_e2m1fn")
    F8E8M0 = ("f8e8m0", 24, 8, "float8_e8m0fnu")
    U2 = ("u2", 25, 2, "uint2")
    I2 = ("i2", 26, 2, "int2")
    F6E2M3 = ("f6e2m3", 27, 6, "float6_e2m3fn")
    F6E3M2 = ("f6e3m2", 28, 6, "float6_e3m2fn")

    @property
    def short(self) -> str:
        """The name used in the text form."""
        return self.value[0]

    @property
    def code(self) -> int:
        """The number of this type in onnx.TensorProto.DataType."""
        return self.value[1]

    @property
    def bits(self) -> int:
        """The size of one element in a packed tensor (a string counts as a 16-byte handle)."""
        return self.value[2]

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype of an unpacked array of this type."""
        try:
            return np.dtype(self.value[3])
        except TypeError:  # one of those that numpy does not have
            import ml_dtypes

        found: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, self.value[3]))
        return found

    @property
    def is_float(self) -> bool:
        """Whether this is a real floating-point type."""
        return self.short[0] in "fb" and self is not DType.BOOL

    @property
    def is_integer(self) -> bool:
        """Whether this is an integer type (bool is not)."""
        return self.short[0] in "iu"

    @property
    def is_real(self) -> bool:
        """Whether this is a floating-point type, an integer type or bool."""
        return self.is_float or self.is_integer or self is DType.BOOL

    @staticmethod
    def from_code(code: int) -> DType:
        """The type with that TensorProto code; ValueError when there is none."""
        return _by_code()[code] if code in _by_code() else _unknown(code)

    @staticmethod
    def from_short(name: str) -> DType:
        """The type with that short name; KeyError when there is none."""
        return _by_short()[name]

    @staticmethod
    def from_numpy(dtype: np.dtype[np.generic]) -> DType:
        """The type of an array; ValueError when ONNX has none such."""
        if dtype.kind in "OUS":
            return DType.STRING
        found = _by_numpy().get(dtype.name)
        if found is None:
            raise ValueError(f"numpy dtype {dtype} has no ONNX element type")
        return found


def _unknown(code: int) -> DType:
    raise ValueError(f"element type {code} is not known")


@lru_cache(maxsize=1)
def _by_code() -> dict[int, DType]:
    return {d.code: d for d in DType}


@lru_cache(maxsize=1)
def _by_short() -> dict[str, DType]:
    return {d.short: d for d in DType}


@lru_cache(maxsize=1)
def _by_numpy() -> dict[str, DType]:
    return {d.value[3]: d for d in DType}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's element type and shape; ``shape`` is None when not even the rank is known."""

    dtype: DType
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        """The number of dims, or None."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def elements(self) -> Dim | None:
        """The number of elements, or None when the rank is unknown."""
        return None if self.shape is None else product(self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as numbers; ValueError when a size is not known."""
        if self.shape is None or not self.is_static:
            raise ValueError(f"{self} is not static")
        return tuple(d for d in self.shape if isinstance(d, int))

    @property
    def bytes(self) -> int:
        """The packed size of the whole tensor; ValueError when a size is not known."""
        count = 1
        for size in self.sizes:
            count *= size
        return -(-count * self.dtype.bits // 8)

    def symbols(self) -> set[str]:
        """The names of all symbols in the shape."""
        return {name for d in self.shape or () for name in symbols(d)}

    def bind(self, binding: Mapping[str, Dim]) -> TensorType:
        """The same type with symbols replaced."""
        if self.shape is None or self.is_static:
            return self
        return TensorType(self.dtype, tuple(substitute(d, binding) for d in self.shape))

    def __str__(self) -> str:
        inner = "*" if self.shape is None else ", ".join(str(d) for d in self.shape)
        return f"{self.dtype.short}[{inner}]"


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A sequence, optional, map or sparse type: carried through, never looked into.

    ``text`` is for people; ``proto`` is the serialised onnx.TypeProto.
    """

    text: str
    proto: bytes

    def symbols(self) -> set[str]:
        """Opaque types bind nothing."""
        return set()

    def bind(self, binding: Mapping[str, Dim]) -> OpaqueType:
        """Opaque types bind nothing."""
        return self

    def __str__(self) -> str:
        return self.text


ValueType = Union[TensorType, OpaqueType, None]
"""The type of a value; None where nothing is known."""


def tensor(dtype: DType | str, shape: Iterable[Dim]) -> TensorType:
    """Short for building a `TensorType`: ``tensor("f32", (2, 3))``."""
    kind = dtype if isinstance(dtype, DType) else DType.from_short(dtype)
    return TensorType(kind, tuple(shape))
