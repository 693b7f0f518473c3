"""Reading the data of constants in the text form.

    [[1.0, 2.0], [3.0, inf]]     elements, nested as the shape says, or flat; 3.0 for a scalar
    base64 "AAAA"                elements as little-endian bytes (one byte each below 8 bits)
    sparse 2 [0, 7] [1.0, 2.0]   two elements at these positions of the flattened tensor, else 0
    external "weights.bin ..."   lies in a file; the text says which and does not hold it
    absent                       nobody has it

`text_data_print` writes it.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.text.lexer import Lexer
from gecompiler.ir.types import DType, TensorType

COMPLEX = (DType.C64, DType.C128)


@dataclass(frozen=True)
class Elsewhere:
    """The source of a constant that a text calls external: known by description only."""

    description: str

    def describe(self) -> str:
        """What the text says of it."""
        return self.description

    def load(self, type_: TensorType) -> Array:
        """Raises MissingDataError."""
        raise MissingDataError(
            f"the data of a {type_} constant lies in {self.description}, not in the text form",
            hint="load the model itself to run it",
        )


def read_data(lexer: Lexer, type_: TensorType) -> Constant:
    """The constant of that static type whose data comes next in the text."""
    if lexer.take("absent"):
        return Constant.absent(type_)
    if lexer.take("external"):
        text = lexer.expect_kind("string", "a description in double quotes").text
        return Constant(type_, source=Elsewhere(text))
    if lexer.take("sparse"):
        return _read_sparse(lexer, type_)
    return Constant(type_, _read_array(lexer, type_))


def _read_array(lexer: Lexer, type_: TensorType) -> Array:
    start = lexer.peek().start
    if lexer.take("base64"):
        data = _read_base64(lexer, type_)
    else:
        items = _read_items(lexer, type_)
        try:
            data = array_of(type_.dtype, items).reshape(type_.sizes)
        except (OverflowError, TypeError, ValueError) as error:
            raise lexer.error(f"data that is no {type_}: {error}", start) from None
    data.flags.writeable = False
    return data


def _read_base64(lexer: Lexer, type_: TensorType) -> Array:
    token = lexer.expect_kind("string", "base64 in double quotes")
    if type_.dtype is DType.STRING:
        raise lexer.error("strings are written as elements, not as base64", token.start)
    try:
        raw = base64.b64decode(token.text, validate=True)
    except ValueError as error:
        raise lexer.error(f"bad base64: {error}", token.start) from None
    dtype = type_.dtype.numpy
    wanted = math.prod(type_.sizes) * dtype.itemsize
    if len(raw) != wanted:
        raise lexer.error(f"{type_} takes {wanted} bytes, found {len(raw)}", token.start)
    word = word_bytes(dtype)
    native = np.frombuffer(raw, f"<u{word}").astype(f"=u{word}")
    return native.view(dtype).reshape(type_.sizes)


def _read_sparse(lexer: Lexer, type_: TensorType) -> Constant:
    from gecompiler.ir.onnx_io.data import SparseData

    count = _number(lexer, int, "how many elements are stored")
    start = lexer.peek().start
    positions = _read_array(lexer, TensorType(DType.I64, (count,)))
    values = _read_array(lexer, TensorType(type_.dtype, (count,)))
    elements = math.prod(type_.sizes)
    if count and not (int(positions.min()) >= 0 and int(positions.max()) < elements):
        raise lexer.error(f"a position lies outside {type_}", start)
    return Constant(type_, source=SparseData(values, positions))


def _read_items(lexer: Lexer, type_: TensorType) -> list[Any]:
    """The elements that come next, flat; nested as the shape says or not at all."""
    if not type_.sizes:
        return [_read_element(lexer, type_.dtype)]
    items: list[Any] = []
    start = lexer.peek().start
    _read_level(lexer, type_, 0, items)
    wanted = math.prod(type_.sizes)
    if len(items) != wanted:
        raise lexer.error(f"{type_} has {wanted} elements, found {len(items)}", start)
    return items


def _read_level(lexer: Lexer, type_: TensorType, depth: int, items: list[Any]) -> None:
    start, children = lexer.expect("[").start, 0
    nested = depth > 0 or lexer.sees("[")
    while not lexer.take("]"):
        if children:
            lexer.expect(",")
        children += 1
        if nested and depth + 1 < len(type_.sizes):
            _read_level(lexer, type_, depth + 1, items)
        else:
            items.append(_read_element(lexer, type_.dtype))
    if nested and children != type_.sizes[depth]:
        raise lexer.error(
            f"axis {depth} of {type_} has {type_.sizes[depth]} elements, found {children}", start
        )


def _read_element(lexer: Lexer, dtype: DType) -> Any:
    if dtype is DType.STRING:
        if lexer.peek().kind == "bytes":
            return lexer.bytes_of(lexer.next())
        return lexer.expect_kind("string", "a string").text
    if dtype is DType.BOOL:
        word = lexer.take("true", "false")
        return word.text == "true" if word else bool(_number(lexer, int, "true or false"))
    if dtype.is_integer:
        return _number(lexer, int, "an integer")
    if dtype in COMPLEX and lexer.take("("):
        real = _number(lexer, float, "a number")
        lexer.expect(",")
        imaginary = _number(lexer, float, "a number")
        lexer.expect(")")
        return complex(real, imaginary)
    return _number(lexer, float, "a number")


def _number(lexer: Lexer, kind: type[int] | type[float], what: str) -> Any:
    if lexer.peek().kind != "number":
        raise lexer.unexpected(what)
    token = lexer.next()
    try:
        value = token.number() if kind is float else int(token.text)
    except ValueError:
        raise lexer.error(f"expected {what}, found {token}", token.start) from None
    if math.isinf(value) and "inf" not in token.text:
        raise lexer.error(f"{token} is too large", token.start)
    return value


def array_of(dtype: DType, items: list[Any]) -> Array:
    """A flat array; OverflowError when an item does not fit."""
    if dtype is DType.STRING:
        strings = np.empty(len(items), object)
        strings[:] = items
        return strings
    if dtype.is_integer:
        low = 0 if dtype.short[0] == "u" else -(1 << (dtype.bits - 1))
        high = low + (1 << dtype.bits) - 1
        for item in items:
            if not low <= item <= high:
                raise OverflowError(f"{item} does not lie in {low} to {high}")
        return np.array(items, np.uint64 if low == 0 else np.int64).astype(dtype.numpy)
    wide = np.array(items, np.complex128 if dtype in COMPLEX else np.float64)
    with np.errstate(all="ignore"):
        array = wide.astype(bool if dtype is DType.BOOL else dtype.numpy)
        back = array.astype(wide.dtype)
        lost = (np.isfinite(wide) & ~np.isfinite(back)) | (np.isnan(wide) & ~np.isnan(back))
    if lost.any():
        raise OverflowError(f"it cannot hold {items[int(lost.argmax())]}")
    return array


def word_bytes(dtype: np.dtype[Any]) -> int:
    """The bytes that keep together when byte orders differ."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
