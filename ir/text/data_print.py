"""Writing the data of constants; `text_data` says how it looks and reads it."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.text.data import COMPLEX, array_of, word_bytes
from gecompiler.ir.text.lexer import bytes_text, string_text
from gecompiler.ir.types import DType

INLINE_ELEMENTS = 64
"""Constants with more elements are written as base64 (strings always as elements)."""


def data_text(constant: Constant, limit: int | None = None) -> str:
    """The data as text; ``absent`` for data of more than ``limit`` bytes."""
    source = constant.source
    if constant.data is None:
        if source is None:
            return "absent"
        if hasattr(source, "indices") and hasattr(source, "values"):
            return _sparse_text(constant.type.dtype, source)
        return f"external {string_text(source.describe())}"
    if limit is not None and constant.data.nbytes > limit:
        return "absent"
    return _array_text(constant.type.dtype, constant.data)


def _sparse_text(dtype: DType, source: Any) -> str:
    positions = np.asarray(source.indices, np.int64)
    stored = f"{_array_text(DType.I64, positions)} {_array_text(dtype, source.values)}"
    return f"sparse {len(positions)} {stored}"


def _array_text(dtype: DType, data: Array) -> str:
    if dtype is DType.STRING or data.size <= INLINE_ELEMENTS:
        items = [_element_text(dtype, item) for item in data.reshape(-1)]
        if dtype in (DType.STRING, DType.BOOL) or dtype.is_integer or _exact(dtype, data, items):
            return _nested(items, data.shape)
    return f'base64 "{base64.b64encode(_little_endian(data)).decode()}"'


def _little_endian(data: Array) -> bytes:
    raw = np.ascontiguousarray(data)
    word = word_bytes(raw.dtype)
    return raw.reshape(-1).view(f"=u{word}").astype(f"<u{word}").tobytes()


def _element_text(dtype: DType, item: Any) -> str:
    if dtype is DType.STRING:
        return bytes_text(item) if isinstance(item, bytes) else string_text(str(item))
    if dtype is DType.BOOL:
        return "true" if item else "false"
    if dtype.is_integer:
        return str(int(item))
    if dtype in COMPLEX:
        return f"({float(item.real)!r}, {float(item.imag)!r})"
    if dtype in (DType.F16, DType.F32):
        return str(item)  # the shortest text that this type tells apart
    return repr(float(item))


def _exact(dtype: DType, data: Array, items: list[str]) -> bool:
    """Whether the texts give the same bits back; not so for a NaN with a payload."""
    values = [_plain_value(item) for item in items]
    return array_of(dtype, values).tobytes() == np.ascontiguousarray(data).tobytes()


def _plain_value(text: str) -> Any:
    if text.startswith("("):
        real, imaginary = text[1:-1].split(", ")
        return complex(float(real), float(imaginary))
    return float(text)


def _nested(items: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return items[0]
    if not items:
        return "[]"
    for size in reversed(shape):
        items = [f"[{', '.join(items[i : i + size])}]" for i in range(0, len(items), size)]
    return items[0]
