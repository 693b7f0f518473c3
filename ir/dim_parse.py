"""Reading dims back from the text that `str` of a dim gives, or that an exporter wrote.

    expr   = term {("+" | "-") term}
    term   = factor {("*" | "//" | "%") factor}
    factor = "-" factor | atom ["**" number]
    atom   = number | name | string | function "(" expr {"," expr} ")" | "(" expr ")"

A string in JSON's double quotes is a symbol whose name is no plain one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from gecompiler.ir.dim_expr import MAX_NESTING, PLAIN_NAME
from gecompiler.ir.dims import FUNCTIONS, Dim, floordiv, mod, product, symbol

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>[0-9]+)|(?P<name>[^\W\d][\w.]*)"
    r'|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<sign>\*\*|//|[-+*%(),]))'
)
_SPACE = re.compile(r"[ \t\r\n]*")
_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": floordiv,
    "%": mod,
}
_FUNCTIONS: Mapping[str, Callable[..., Dim]] = {
    **FUNCTIONS,
    "Max": FUNCTIONS["max"],  # the capitals are those of sympy, hence of PyTorch's exporter
    "Min": FUNCTIONS["min"],
    "Mod": mod,
    "FloorDiv": floordiv,
}
_MAX_DIGITS = 40
_MAX_POWER = 16


class DimSyntaxError(ValueError):
    """Text that is no dim: what is wrong, and ``position``, the index of where."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@lru_cache(maxsize=8192)
def parse_dim(text: str) -> Dim:
    """The dim that ``text`` spells: ``8``, ``batch``, ``2*s + 1``, ``floordiv(s, 2)``.

    A spelling that is no expression is a symbol of that very name, since exporters write
    names such as ``MatMullogits_dim_0`` or ``unk__3`` and some write arbitrary text; so is
    one that comes out as a negative number, which no size is.
    """
    plain = text.strip()
    if PLAIN_NAME.fullmatch(plain):
        return symbol(plain)
    try:
        dim, end = read_dim(plain, 0)
    except ValueError:
        return symbol(text)
    negative = isinstance(dim, int) and dim < 0
    return symbol(text) if negative or end < len(plain) else dim


def read_dim(text: str, position: int) -> tuple[Dim, int]:
    """The dim spelled at that place, and where it ends; DimSyntaxError when there is none."""
    reader = _Reader(text, position)
    return reader.sum(0), reader.position


class _Reader:
    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position

    def _take(self, *signs: str) -> str:
        """The next sign if it is one of those, else the empty string."""
        found = _TOKEN.match(self.text, self.position)
        if found is None or found.group("sign") not in signs:
            return ""
        self.position = found.end()
        return found.group("sign")

    def _require(self, sign: str) -> None:
        if not self._take(sign):
            raise DimSyntaxError(f"expected {sign!r} in a size", self._next())

    def _next(self) -> int:
        found = _SPACE.match(self.text, self.position)
        return found.end() if found else self.position

    def _apply(self, function: Callable[..., Dim], args: list[Dim], at: int) -> Dim:
        try:
            return function(*args)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise DimSyntaxError(f"this size cannot be computed: {error}", at) from None

    def sum(self, depth: int) -> Dim:
        total = self._product(depth)
        while sign := self._take("+", "-"):
            at = self._next()
            total = self._apply(_OPERATORS[sign], [total, self._product(depth)], at)
        return total

    def _product(self, depth: int) -> Dim:
        total = self._factor(depth)
        while sign := self._take("*", "//", "%"):
            at = self._next()
            total = self._apply(_OPERATORS[sign], [total, self._factor(depth)], at)
        return total

    def _factor(self, depth: int) -> Dim:
        sign = 1
        while self._take("-"):
            sign = -sign
        base = self._atom(depth + 1)
        if self._take("**"):
            at = self._next()
            power = self._atom(depth + 1)
            if not isinstance(power, int) or not 0 <= power <= _MAX_POWER:
                raise DimSyntaxError(f"expected a power of 0 to {_MAX_POWER}", at)
            base = self._apply(lambda *factors: product(factors), [base] * power, at)
        return sign * base

    def _atom(self, depth: int) -> Dim:
        found = _TOKEN.match(self.text, self.position)
        if found is None or depth > MAX_NESTING:
            raise DimSyntaxError("expected a size", self._next())
        kind = found.lastgroup or ""
        at, token = found.start(kind), found[kind]
        if kind == "sign" and token != "(":
            raise DimSyntaxError("expected a size", at)
        self.position = found.end()
        if kind == "number":
            return self._number(token, at)
        if kind == "string":
            return self._string(token, at)
        if kind == "name":
            return self._call(token, depth, at) if self._take("(") else symbol(token)
        inner = self.sum(depth)
        self._require(")")
        return inner

    def _number(self, token: str, at: int) -> int:
        if len(token) > _MAX_DIGITS:
            raise DimSyntaxError("this number is too long for a size", at)
        return int(token)

    def _string(self, token: str, at: int) -> Dim:
        try:
            return symbol(json.loads(token))
        except ValueError:
            raise DimSyntaxError("this string has a bad escape", at) from None

    def _call(self, name: str, depth: int, at: int) -> Dim:
        if name not in _FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise DimSyntaxError(f"no function of sizes is named {name!r} (known: {known})", at)
        args = [self.sum(depth)]
        while self._take(","):
            args.append(self.sum(depth))
        self._require(")")
        return self._apply(_FUNCTIONS[name], args, at)
