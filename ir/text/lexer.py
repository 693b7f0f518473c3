"""Tokens of the text form, and errors that show their place in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gecompiler.ir.dim_expr import PLAIN_NAME
from gecompiler.ir.errors import GraphError, nearest

_SKIPPED = re.compile(r"(?:\s+|//[^\n]*)*")
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_TOKEN = re.compile(
    rf"(?P<value>%(?:{_STRING}|[\w.]+))"
    rf"|(?P<op>@(?:{_STRING}|[\w.]+))"
    rf"|(?P<bytes>b{_STRING})"
    rf"|(?P<string>{_STRING})"
    r"|(?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?f?|inf|nan)(?![\w.]))"
    r"|(?P<word>[^\W\d][\w.]*)"
    r"|(?P<sign>->|[][{}(),:=.*])"
)
_PLAIN_SIGIL = re.compile(r"[\w.]+")
_BYTE_ESCAPE = re.compile(rb'\\(?:x([0-9a-fA-F]{2})|([\\"ntr]))|\\(.?)', re.DOTALL)
_NAMED_BYTES = {b"\\": b"\\", b'"': b'"', b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_RESERVED = frozenset({"inf", "nan", "true", "false"})
_SHOWN = 100


class TextError(GraphError):
    """Text that is no graph. ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, source: Source, position: int, hint: str = "") -> None:
        self.line, self.column = source.place(position)
        super().__init__(
            f"{message}\n{source.excerpt(position)}",
            where=f"{source.name}:{self.line}:{self.column}",
            hint=hint,
        )


class Source(NamedTuple):
    """A text and the name it goes by in messages."""

    text: str
    name: str

    def place(self, position: int) -> tuple[int, int]:
        """Line and column of an index, from 1."""
        before = self.text[:position]
        return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1

    def excerpt(self, position: int) -> str:
        """The line of that index, cut to what fits, with a caret below."""
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        first = max(start, position - _SHOWN // 2)
        line = self.text[first : len(self.text) if end < 0 else end][:_SHOWN]
        pad = "".join("\t" if c == "\t" else " " for c in self.text[first:position])
        return f"    {line}\n    {pad}^"


class Token(NamedTuple):
    """A token: its kind, its text (names and strings already unquoted), its place."""

    kind: str
    text: str
    start: int
    end: int

    def number(self) -> float:
        """The value of a number; with ``f`` behind it, that of the nearest float32."""
        if self.text[-1] != "f" or self.text[-2:] == "nf":
            return float(self.text)
        with np.errstate(over="ignore"):
            return float(np.float32(self.text[:-1]))

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        mark = {"value": "%", "op": "@"}.get(self.kind, "")
        return repr(mark + self.text) if self.kind != "string" else f"the string {self.text!r}"


class Lexer:
    """Reads tokens one by one; ``position`` is where the next one is looked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.position = 0
        self._ahead: Token | None = None

    def error(self, message: str, position: int, hint: str = "") -> TextError:
        """An error at that place, to be raised."""
        return TextError(message, self.source, position, hint)

    def peek(self) -> Token:
        """The next token, left where it is."""
        if self._ahead is None:
            self._ahead = self._read(self.position)
        return self._ahead

    def after(self) -> Token:
        """The token after the next."""
        return self._read(self.peek().end)

    def followed_by(self, *signs: str) -> bool:
        """Whether the token after the next is one of those signs."""
        token = self.after()
        return token.kind == "sign" and token.text in signs

    def next(self) -> Token:
        """The next token, taken."""
        token = self.peek()
        self.go_to(token.end)
        return token

    def go_to(self, position: int) -> None:
        """Continues at that index."""
        self.position, self._ahead = position, None

    def take(self, *signs: str) -> Token | None:
        """The next token if it is one of those signs or words, else None."""
        token = self.peek()
        return self.next() if token.text in signs and token.kind in ("sign", "word") else None

    def expect(self, sign: str) -> Token:
        """The next token, which must be that sign or word."""
        token = self.take(sign)
        if token is None:
            raise self.unexpected(repr(sign))
        return token

    def expect_kind(self, kind: str, what: str) -> Token:
        """The next token, which must be of that kind."""
        if self.peek().kind != kind:
            raise self.unexpected(what)
        return self.next()

    def unexpected(self, wanted: str, known: Iterable[str] = ()) -> TextError:
        """The error that something else was expected here; ``known`` gives the nearest names."""
        token = self.peek()
        names = list(known)
        hint = nearest(token.text, names) if names else ""
        return self.error(f"expected {wanted}, found {token}", token.start, hint)

    def sees(self, character: str) -> bool:
        """Whether the next token begins with that; for what has tokens of its own."""
        return self.source.text.startswith(character, self._start(self.position))

    def _start(self, position: int) -> int:
        skipped = _SKIPPED.match(self.source.text, position)
        return skipped.end() if skipped else position

    def _read(self, position: int) -> Token:
        start = self._start(position)
        found = _TOKEN.match(self.source.text, start)
        if found is None:
            if start >= len(self.source.text):
                return Token("end", "", start, start)
            raise self._bad(start)
        kind, text = found.lastgroup or "", found[0]
        if kind in ("value", "op"):
            text = text[1:] if text[1] != '"' else self._unquoted(text[1:], start + 1)
        elif kind == "string":
            text = self._unquoted(text, start)
        return Token(kind, text, start, found.end())

    def _bad(self, start: int) -> TextError:
        text = self.source.text
        if text[start] in "%@":
            return self.error(f"expected a name after {text[start]!r}", start)
        if text[start] == '"' or text.startswith('b"', start):
            return self.error("this string does not end on its line", start, "close it with '\"'")
        return self.error(f"unexpected character {text[start]!r}", start)

    def _unquoted(self, text: str, start: int) -> str:
        try:
            found: str = json.loads(text, strict=False)
        except ValueError as error:
            offset = getattr(error, "pos", 0)
            raise self.error(
                "bad escape in a string", start + offset, "escapes are JSON's"
            ) from None
        return found

    def bytes_of(self, token: Token) -> bytes:
        """The bytes that a bytes token spells."""
        raw = token.text[2:-1].encode("utf-8", "surrogatepass")
        if any(bad is not None for _, _, bad in _groups(raw)):
            raise self.error(
                "bad escape in bytes", token.start, r"known escapes: \xNN \n \r \t \\ and \""
            )
        return _BYTE_ESCAPE.sub(_unescaped, raw)


def _groups(raw: bytes) -> Iterable[tuple[bytes | None, bytes | None, bytes | None]]:
    return ((m[1], m[2], m[3]) for m in _BYTE_ESCAPE.finditer(raw))


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode()) if found[1] else _NAMED_BYTES[found[2]]


# -------------------------------------------------------------------- writing


def string_text(text: str) -> str:
    """The string in double quotes."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def bytes_text(raw: bytes) -> str:
    """The bytes in double quotes after a ``b``."""
    shown = (chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in raw)
    return 'b"' + "".join(shown) + '"'


def name_text(sigil: str, name: str) -> str:
    """A value's or op's name after its sigil, quoted where it is no plain one."""
    return sigil + (name if _PLAIN_SIGIL.fullmatch(name) else string_text(name))


def word_text(word: str) -> str:
    """An attribute's name, a domain or an op type: as it is, or quoted."""
    plain = PLAIN_NAME.fullmatch(word) and word not in _RESERVED
    return word if plain else string_text(word)
