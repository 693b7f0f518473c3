"""How the report stands in the terminal: lines that fit, tables, names of resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gecompiler.lang import say
from gecompiler.lang.width import columns, cut, pad, pad_left, wrap
from gecompiler.screen import PIPE_WIDTH

LABEL = 11
"""Columns of a line's label, two before it."""


def labelled(label: str, text: str, width: int) -> list[str]:
    """``  model      opset 20, ...``, wrapped under the text."""
    return wrap(text, width, f"  {pad(label, LABEL)}", " " * (LABEL + 2))


def figure(label: str, value: str, text: str, width: int) -> list[str]:
    """``  lower bound    428.1 ms   by cube; ...``, wrapped under the text."""
    head = f"  {pad(label, 14)}{pad_left(value, 11)}   "
    return wrap(text, width, head, " " * 30) if text else [head.rstrip()]


def indented(text: str, width: int, indent: str = "  ") -> list[str]:
    """The text behind an indentation, two more from the second line on."""
    return wrap(text, width, indent, indent + "  ")


def fitted(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines that are too wide, wrapped under their own beginning."""
    for line in lines:
        if columns(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        yield from wrap(line.lstrip(), width, indent, indent + "  ")


def share_row(share: float, time: str, count: int, name: str, end: str, width: int) -> str:
    """A row of what the time goes into."""
    wide = name_width(width)
    return f"  {share:5.1%}  {time:>11}  {count:>6} x {pad(cut(name, wide), wide)} {end}".rstrip()


def name_width(width: int) -> int:
    """Columns of a table's names: as many as the rest of the row leaves."""
    return max(12, min(width - 40, 40 if width <= PIPE_WIDTH else width - 56))


def resource_name(name: str) -> str:
    """A resource as people call it."""
    return say(NAMED[name]) if name in NAMED else name


def bound_name(name: str) -> str:
    """What a lower bound is about, in words."""
    return say(BOUNDS[name]) if name in BOUNDS else name


BOUNDS = {
    "critical_path": "the longest chain of dependencies",
    "events": "chains of dependencies and the syncs on them",
    "segments": "chains of dependencies and what lies between them",
    "streams": "the work on that many streams",
    "fixed": "the start-up of tasks",
}

NAMED = {
    "fixed": "start-up",
    "peers": "other cards",
    "events": "events",
    "segments": "segments",
    "streams": "streams",
    "critical_path": "longest chain",
}
"""Those that are words; the others are the hardware's own: cube, vector, hbm, l2, links."""
