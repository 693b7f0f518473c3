"""What the terminal can show: how wide it is, and whether it has colours."""

from __future__ import annotations

import os
import shutil
import sys

PIPE_WIDTH = 96
"""Columns where stdout is no terminal, so that files come out the same everywhere."""
NARROWEST, WIDEST = 40, 160

STYLES = {"head": "1", "warn": "33", "bad": "31"}


def width() -> int:
    """Columns of the report: those of the terminal, within reason."""
    if not _is_terminal():
        return PIPE_WIDTH
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns))


def styled(text: str, style: str) -> str:
    """The text in bold or in a colour, where the terminal has any and the user lets it.

    https://no-color.org: a set NO_COLOR means none; TERM=dumb cannot.
    """
    if not text or not _has_colours():
        return text
    return f"\033[{STYLES[style]}m{text}\033[0m"


def _is_terminal() -> bool:
    return bool(getattr(sys.stdout, "isatty", lambda: False)())


def _has_colours() -> bool:
    return (
        _is_terminal()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    )
