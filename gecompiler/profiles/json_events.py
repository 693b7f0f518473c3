"""The events of a trace file one after the other, however large the file is.

Numbers with a fraction stay text: a time since 1970 in microseconds has more digits than a
double holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from gecompiler.captures.tables import check_size
from gecompiler.ir.errors import UsageError

CHUNK = 1 << 20
MAX_EVENT = 1 << 22
"""An event with more characters is none."""

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of ``[...]`` or of ``{"traceEvents": [...]}``; what is no object is left out.

    UsageError for a file that is neither. A file that ends within an event, as of a run that was
    killed, gives those before it.
    """
    check_size(path)
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            yield from _Reader(file, path).events()
    except OSError as error:
        raise UsageError(f"the trace cannot be read: {error.strerror}", where=str(path)) from None


class _Reader:
    def __init__(self, file: TextIO, path: Path) -> None:
        self._file, self._path = file, path
        self._text, self._at, self._done = "", 0, False

    def events(self) -> Iterator[dict[str, Any]]:
        self._find_list()
        while True:
            self._skip(" \t\r\n,")
            if self._peek() in ("]", ""):
                return
            found = self._value()
            if found is None:
                return
            if isinstance(found[0], dict):
                yield found[0]

    def _find_list(self) -> None:
        self._skip(" \t\r\n")
        first = self._peek()
        if first == "[":
            self._at += 1
            return
        if first != "{":
            raise self._wrong("is no trace: expected a list of events")
        self._at += 1
        while True:
            self._skip(" \t\r\n,")
            if self._peek() != '"':
                raise self._wrong("has no traceEvents")
            key = self._value()
            self._skip(" \t\r\n:")
            if key is not None and key[0] == "traceEvents" and self._peek() == "[":
                self._at += 1
                return
            if key is None or self._value() is None:
                raise self._wrong("has no traceEvents")

    def _wrong(self, message: str) -> UsageError:
        return UsageError(
            message,
            where=str(self._path),
            hint='expected msprof_*.json or trace_view.json: [...] or {"traceEvents": [...]}',
        )

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK)
        self._text, self._at = self._text[self._at :] + chunk, 0
        self._done = not chunk
        return bool(chunk)

    def _skip(self, blank: str) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in blank:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self) -> tuple[Any] | None:
        """The next value; None where the file ends within it."""
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or self._done:
                    self._at = end
                    return (found,)
            except json.JSONDecodeError as error:
                if self._done:
                    return None
                if error.pos < len(self._text) - 64 and not _open_text(error):
                    raise self._wrong(f"is no JSON: {error.msg}") from None
            except (RecursionError, ValueError) as error:
                raise self._wrong(f"is no JSON: {type(error).__name__}") from None
            if len(self._text) - self._at > MAX_EVENT + CHUNK:
                raise self._wrong(f"has an event of more than {MAX_EVENT} characters")
            self._more()


def _open_text(error: json.JSONDecodeError) -> bool:
    """Whether a string began that may end in what is not read yet: it is faulted at its start."""
    return "string" in error.msg.lower()
