"""Columns of a terminal: Chinese characters take two, and lines break between any of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

_CLOSING = "，。、；：！？）》」』】”’…"
_OPENING = "（《「『【“‘"
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
_WORD = re.compile(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*|\s+")
"""A wide character, or a run of others, with the marks that must not be torn from it."""


def columns(text: str) -> int:
    """How many columns the text takes."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def pad(text: str, width: int) -> str:
    """The text with spaces behind it up to that many columns."""
    return text + " " * max(0, width - columns(text))


def pad_left(text: str, width: int) -> str:
    """The text with spaces before it up to that many columns."""
    return " " * max(0, width - columns(text)) + text


def cut(text: str, width: int) -> str:
    """The text, its end left out where it takes more columns."""
    if columns(text) <= width:
        return text
    kept = ""
    for char in text:
        if columns(kept + char) > width:
            break
        kept += char
    return kept


def tail(name: str, width: int) -> str:
    """The name's end, which tells most of a path, where the whole takes more columns."""
    return name if columns(name) <= width else "..." + name[max(3, len(name) - width + 3) :]


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """The text in lines of at most that many columns, as far as its words allow.

    ``first`` stands before the first line, ``rest`` before the others.
    """
    if columns(first + text) == len(first + text):
        found = textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return found or [first]
    lines, line = [], first
    empty = True
    for word in _WORD.findall(text):
        blank = word.isspace()
        if not empty and columns(line + word.rstrip()) > width and not blank:
            lines.append(line.rstrip())
            line, empty = rest, True
        if not (blank and empty):
            line += word
            empty = False
    return [*lines, line.rstrip()]


def fitted(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines that are too wide, wrapped under their own beginning."""
    for line in lines:
        if columns(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        yield from wrap(line.lstrip(), width, indent, indent + "  ")
