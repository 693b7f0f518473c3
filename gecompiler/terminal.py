r"""What names from files may do to a terminal: nothing.

Names in models, captures and schedules are text of a stranger's. Control characters in them
could move the cursor, retitle the window or turn text round, so all that commands print passes
through here, and they are spelled out (``\x1b``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""C0 and C1 but tab and newline, and what changes the direction of text (Unicode TR 36)."""


def printable(text: str) -> str:
    """The text with control characters and lone surrogates spelled out."""
    return _CONTROLS.sub(_spelled, text).encode("utf-8", "backslashreplace").decode()


def _spelled(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class PrintableStream:
    """A text stream whose every write is made printable; in all else the stream it wraps."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Writes the text made printable; as many characters count as were given."""
        shown = printable(text)
        try:
            self.raw.write(shown)
        except UnicodeEncodeError:
            encoding = self.raw.encoding
            self.raw.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Writes every line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: Any) -> Any:
    """The stream itself, for one who writes control sequences of its own: colours, a bar."""
    return stream.raw if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_output() -> Iterator[None]:
    """Makes stdout and stderr printable for a while."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (PrintableStream(raw_stream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
