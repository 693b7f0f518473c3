"""Texts with holes, and how one that is filled in is recognised.

``"{} is missing: there is no such file"`` is written as `str.format` takes it. `match` gives
what stands in the holes of a finished text, so that texts can be made in one language where
something happens and put into another one where they are shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

_HOLE = r"""('(?:[^'\\]|\\.)*'|\d[\d.,]*|.+?)"""
"""A name in quotes, whatever stands in it, or a number, or else as little as goes."""


@dataclass(frozen=True)
class Template:
    """A text with positional or named holes."""

    text: str

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What stands before, between and behind the holes."""
        found = [""]
        for literal, field, _, _ in Formatter().parse(self.text):
            found[-1] += literal
            if field is not None:
                found.append("")
        return tuple(found)

    @cached_property
    def weight(self) -> int:
        """How many characters are given: the more, the surer a match."""
        return sum(map(len, self.pieces))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_HOLE.join(map(re.escape, self.pieces)), re.DOTALL)

    def match(self, text: str) -> tuple[str, ...] | None:
        """What stands in the holes, None where the text is not of this template."""
        pieces = self.pieces
        if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
            return None
        if any(piece not in text for piece in pieces):
            return None
        found = self._pattern.fullmatch(text)
        return None if found is None else found.groups()


def holes(text: str) -> tuple[str, ...]:
    """The names of a template's holes in order; ``{}`` are numbered."""
    names = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
    return tuple(name or str(i) for i, name in enumerate(names))
