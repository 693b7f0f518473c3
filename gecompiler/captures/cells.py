"""Cells of an operator table: numbers, lists of shapes, element types."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from gecompiler.ir.types import DType

MAX_SIZE = 1 << 48
"""Larger sizes are mistakes: the product of a shape is computed from them."""

MAX_NS = 1 << 62
"""The year 2116 in nanoseconds since 1970; later ones are mistakes."""

_TYPES: dict[str, DType] = {
    "FLOAT": DType.F32,
    "FLOAT32": DType.F32,
    "FLOAT16": DType.F16,
    "HALF": DType.F16,
    "BF16": DType.BF16,
    "BFLOAT16": DType.BF16,
    "DOUBLE": DType.F64,
    "FLOAT64": DType.F64,
    "INT8": DType.I8,
    "INT16": DType.I16,
    "INT32": DType.I32,
    "INT": DType.I32,
    "INT64": DType.I64,
    "LONG": DType.I64,
    "UINT8": DType.U8,
    "UINT16": DType.U16,
    "UINT32": DType.U32,
    "UINT64": DType.U64,
    "BOOL": DType.BOOL,
    "INT4": DType.I4,
    "UINT4": DType.U4,
    "COMPLEX64": DType.C64,
    "COMPLEX128": DType.C128,
    "FLOAT8_E4M3FN": DType.F8E4M3FN,
    "FLOAT8_E5M2": DType.F8E5M2,
    "HIFLOAT8": DType.F8E4M3FN,
    "STRING": DType.STRING,
}


_NAMES = {dtype: name for name, dtype in reversed(_TYPES.items())} | {DType.BF16: "DT_BF16"}


def type_name(dtype: DType) -> str:
    """How profilers spell an element type."""
    return _NAMES.get(dtype, dtype.name)


class CellError(ValueError):
    """A cell that cannot be what its column says."""


def microseconds(text: str, unit_us: float) -> float:
    """A time from 0 up, in microseconds; CellError for anything else."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise CellError(f"{text[:40]!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise CellError(f"{text[:40]!r} is no duration")
    return value * unit_us


def nanoseconds(text: str, unit_us: float = 1.0) -> int | None:
    """A time in ns, exact where the text is: epochs in microseconds overflow a double.

    None for what is no number, not finite, or beyond `MAX_NS`: before it is made an integer,
    whose digits an exponent could make as many as memory holds.
    """
    try:
        value = Decimal(text.replace(",", "")) * (Decimal(str(unit_us)) * 1000)
    except (ArithmeticError, ValueError):
        return None
    return int(value.to_integral_value()) if value.is_finite() and abs(value) < MAX_NS else None


def shapes(text: str) -> tuple[tuple[int, ...] | None, ...]:
    """``"1,2;3,4"`` as shapes, one for each operand; an empty one is a scalar or absent (None).

    The list stands in quotes of its own, which are taken off. CellError for what is no list of
    sizes: a row whose cells have shifted.
    """
    text = text.strip().strip('"').strip()
    if not text:
        return ()
    return tuple(_shape(part.strip()) for part in text.split(";"))


def _shape(text: str) -> tuple[int, ...] | None:
    text = text.strip("[]() ")
    if not text or text == "N/A":
        return None
    if not re.fullmatch(r"-?\d+(\s*,\s*-?\d+)*,?", text):
        raise CellError(f"{text[:40]!r} is no shape")
    sizes = tuple(int(size) for size in text.rstrip(",").split(","))
    if len(sizes) > 16 or any(not 0 <= size <= MAX_SIZE for size in sizes):
        raise CellError(f"{text[:40]!r} is no shape")
    return sizes


def types(text: str) -> tuple[DType | None, ...]:
    """``FLOAT;DT_BF16`` as element types; None where it is empty or unknown."""
    text = text.strip().strip('"')
    if not text:
        return ()
    return tuple(_TYPES.get(part.strip().upper().removeprefix("DT_")) for part in text.split(";"))


def formats(text: str) -> tuple[str, ...]:
    """``NC1HWC0:1;FORMAT_ND`` as layouts: NC1HWC0, ND."""
    text = text.strip().strip('"')
    if not text:
        return ()
    return tuple(
        part.strip().upper().removeprefix("FORMAT_").partition(":")[0] for part in text.split(";")
    )
