"""Types, attributes and notes of ops in the text form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gecompiler.ir.dim_parse import DimSyntaxError, read_dim
from gecompiler.ir.dims import Dim
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Attr
from gecompiler.ir.text.data import read_data
from gecompiler.ir.text.lexer import Lexer, Token
from gecompiler.ir.types import MAX_RANK, DType, OpaqueType, Shape, TensorType

_INFO_TEXTS = ("scope", "group", "label", "phase")
_INFO_NUMBERS = ("priority", "cube_cores", "vector_cores")
_SHORTS = {d.short: d for d in DType}
_ALIASES = {"float": "f32", "double": "f64", "half": "f16", "int": "i32", "long": "i64"} | {
    d.value[3]: d.short for d in DType
}


def read_type(lexer: Lexer) -> TensorType | OpaqueType:
    """A type: ``f32[batch, 2*n + 1]``, ``f32[*]`` of unknown rank, ``opaque "text" b"proto"``."""
    if lexer.take("opaque"):
        text = lexer.expect_kind("string", "the type in words").text
        return OpaqueType(text, lexer.bytes_of(lexer.expect_kind("bytes", "its proto as bytes")))
    token = lexer.peek()
    if token.kind != "word" or token.text not in _SHORTS:
        raise lexer.unexpected("a type such as f32[2, n]", _type_names(token.text))
    lexer.next()
    lexer.expect("[")
    return TensorType(_SHORTS[token.text], _read_shape(lexer))


def _type_names(found: str) -> Iterable[str]:
    """Short names to propose for one that is none."""
    return [_ALIASES[found.lower()]] if found.lower() in _ALIASES else _SHORTS


def _read_shape(lexer: Lexer) -> Shape | None:
    """Sizes up to the closing bracket. They have a grammar of their own, hence no tokens."""
    if lexer.sees("*"):
        lexer.expect("*")
        lexer.expect("]")
        return None
    shape: list[Dim] = []
    while not lexer.sees("]"):
        if shape:
            lexer.expect(",")
        if len(shape) == MAX_RANK:
            raise lexer.error(f"a tensor has at most {MAX_RANK} axes", lexer.position)
        shape.append(_read_dim(lexer))
    lexer.expect("]")
    return tuple(shape)


def _read_dim(lexer: Lexer) -> Dim:
    try:
        dim, end = read_dim(lexer.source.text, lexer.position)
    except DimSyntaxError as error:
        raise lexer.error(str(error), error.position) from None
    lexer.go_to(end)
    return dim


def read_static_type(lexer: Lexer) -> TensorType:
    """A tensor type whose sizes are numbers and whose bytes can be counted."""
    start = lexer.peek().start
    type_ = read_type(lexer)
    if not isinstance(type_, TensorType) or not type_.is_static:
        raise lexer.error("the type of a constant has only numbers for sizes", start)
    if any(size < 0 for size in type_.sizes) or type_.bytes >= 2**63:
        raise lexer.error(f"no tensor has the type {type_}", start)
    return type_


def read_integer(lexer: Lexer, what: str) -> int:
    """An integer that fits in 64 bits."""
    token = lexer.peek()
    if token.kind != "number":
        raise lexer.unexpected(what)
    lexer.next()
    try:
        value = int(token.text)
    except ValueError:
        raise lexer.error(f"expected {what}, found {token}", token.start) from None
    if not -(2**63) <= value < 2**63:
        raise lexer.error(f"{token} does not fit in 64 bits", token.start)
    return value


class AttrReader:
    """Reads what stands behind an op's inputs. ``read_body`` reads a graph after its word."""

    def __init__(self, lexer: Lexer, read_body: Callable[[], Graph]) -> None:
        self.lexer = lexer
        self.read_body = read_body

    def attrs(self) -> dict[str, Attr]:
        """Attributes in braces."""
        found: dict[str, Attr] = {}
        self.lexer.expect("{")
        while not self.lexer.take("}"):
            if found:
                self.lexer.expect(",")
            token = self.lexer.peek()
            if token.kind not in ("word", "string"):
                raise self.lexer.unexpected("an attribute's name")
            self.lexer.next()
            if token.text in found:
                raise self.lexer.error(f"attribute {token.text!r} is given twice", token.start)
            self.lexer.expect("=")
            found[token.text] = self._value()
        return found

    def _value(self) -> Attr:
        start = self.lexer.peek().start
        if not self.lexer.take("["):
            return self._item()
        items: list[Attr] = []
        while not self.lexer.take("]"):
            if items:
                self.lexer.expect(",")
            items.append(self._item())
        if all(isinstance(v, (int, float)) for v in items) and any(
            isinstance(v, float) for v in items
        ):
            return tuple(float(v) for v in items if isinstance(v, (int, float)))
        kinds = {str if isinstance(v, bytes) else type(v) for v in items}
        if len(kinds) > 1:
            raise self.lexer.error("a list holds values of one kind", start)
        return tuple(items)  # type: ignore[return-value]

    def _item(self) -> Attr:
        token = self.lexer.peek()
        if token.kind == "number":
            return self._number(self.lexer.next())
        if token.kind == "string":
            return self.lexer.next().text
        if token.kind == "bytes":
            return self.lexer.bytes_of(self.lexer.next())
        if self.lexer.take("graph"):
            return self.read_body()
        if token.text == "opaque":
            return read_type(self.lexer)  # type: ignore[return-value]
        if token.kind == "word" and token.text in _SHORTS:
            return read_data(self.lexer, read_static_type(self.lexer))
        raise self.lexer.unexpected(
            "a number, a string, a list, a tensor or a graph", (*_SHORTS, "graph", "opaque")
        )

    def _number(self, token: Token) -> int | float:
        if token.text.lstrip("+-").isdigit():
            self.lexer.go_to(token.start)
            return read_integer(self.lexer, "an integer")
        value = token.number()
        if math.isinf(value) and "inf" not in token.text:
            raise self.lexer.error(f"{token} is too large", token.start)
        return value

    def info(self, into: dict[str, object]) -> bool:
        """Takes one note, such as ``scope "/model/fc"``, if one comes next."""
        token = self.lexer.peek()
        if token.kind != "word" or token.text in into:
            return False
        kind = self.lexer.after().kind
        if token.text in _INFO_TEXTS and kind == "string":
            self.lexer.next()
            into[token.text] = self.lexer.next().text
        elif token.text in _INFO_NUMBERS and kind == "number":
            self.lexer.next()
            into[token.text] = read_integer(self.lexer, "an integer")
        elif token.text == "data_sized" and kind == "number":
            self.lexer.next()
            into[token.text] = bool(read_integer(self.lexer, "0 or 1"))
        elif token.text == "sources" and self.lexer.followed_by("["):
            self.lexer.next()
            into[token.text] = self._sources()
        else:
            return False
        return True

    def _sources(self) -> tuple[str, ...]:
        names: list[str] = []
        self.lexer.expect("[")
        while not self.lexer.take("]"):
            if names:
                self.lexer.expect(",")
            names.append(self.lexer.expect_kind("string", "an op's name in quotes").text)
        return tuple(names)
