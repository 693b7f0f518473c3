"""What the terminal can show: how wide it is, and whether it has colours."""

from __future__ import annotations

import os
import shutil
import sys

from gecompiler.lang import say
from gecompiler.lang.width import fitted
from gecompiler.terminal import printable, raw_stream

PIPE_WIDTH = 96
"""Columns where stdout is no terminal, so that files come out the same everywhere."""
NARROWEST, WIDEST = 40, 160

_BOLD, _YELLOW, _PLAIN = "\033[1m", "\033[1;33m", "\033[0m"


def width() -> int:
    """Columns of the report: those of the terminal, within reason."""
    if not _is_terminal():
        return PIPE_WIDTH
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns))


def show(text: str) -> None:
    """Prints a report: the titles, which alone begin at the left, stand out on a terminal."""
    if not has_colours():
        print(fit(text))  # noqa: T201  (printing is what it is for)
        return
    text = fit(text)
    out = raw_stream(sys.stdout)
    out.write("\n".join(_styled(line) for line in printable(text).split("\n")) + "\n")
    out.flush()


def fit(text: str) -> str:
    """The text; lines that a terminal is too narrow for are wrapped, in a pipe none are."""
    return "\n".join(fitted(text.split("\n"), width())) if _is_terminal() else text


def has_colours() -> bool:
    """Whether the terminal has any and the user lets us use them.

    https://no-color.org: a set NO_COLOR means none; TERM=dumb cannot.
    """
    return (
        _is_terminal()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    )


def _styled(line: str) -> str:
    if not line or line.startswith(" "):
        return line
    return f"{_YELLOW if line == say('Warnings') else _BOLD}{line}{_PLAIN}"


def _is_terminal() -> bool:
    return bool(getattr(sys.stdout, "isatty", lambda: False)())
