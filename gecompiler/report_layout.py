"""How the report stands in the terminal: lines that fit, tables, names of resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gecompiler.lang import say
from gecompiler.lang.width import cut, pad, pad_left, wrap
from gecompiler.screen import PIPE_WIDTH

LABEL = 11
"""Columns of a line's label, two before it."""

NARROW = 56
"""With fewer columns a row of a table takes two lines."""


def labelled(label: str, text: str, width: int) -> list[str]:
    """``  model      opset 20, ...``, wrapped under the text."""
    return wrap(text, width, f"  {pad(label, LABEL)}", " " * (LABEL + 2))


def figure(label: str, value: str, text: str, width: int) -> list[str]:
    """``  lower bound    428.1 ms   by cube; ...``, wrapped under the text."""
    head = f"  {pad(label, 14)}{pad_left(value, 11)}   "
    if width < NARROW:  # the text goes under the figure
        return [head.rstrip(), *(wrap(text, width, " " * 4, " " * 4) if text else [])]
    return wrap(text, width, head, " " * 30) if text else [head.rstrip()]


def indented(text: str, width: int, indent: str = "  ") -> list[str]:
    """The text behind an indentation, two more from the second line on."""
    return wrap(text, width, indent, indent + "  ")


def share_row(share: float, time: str, count: int, name: str, end: str, width: int) -> str:
    """A row of what the time goes into; two lines where there is no room for one."""
    wide = name_width(width)
    head = f"  {share:5.1%}  {time:>11}  {count:>6} x "
    if width < NARROW:
        return f"{head}{end}".rstrip() + f"\n    {cut(name, width - 4)}"
    return f"{head}{pad(cut(name, wide), wide)} {end}".rstrip()


def name_width(width: int) -> int:
    """Columns of a table's names: as many as the rest of the row leaves."""
    return max(12, min(width - 40, 40 if width <= PIPE_WIDTH else width - 56))


def resource_name(name: str) -> str:
    """A resource as people call it."""
    return say(NAMED[name]) if name in NAMED else name


def bound_name(name: str) -> str:
    """What a lower bound is about, in words."""
    return say(BOUNDS[name]) if name in BOUNDS else name


def bound_text(schedule: Mapping[str, Any]) -> str:
    """What the lower bound of a report's ``schedule`` is about, in words.

    Chains of dependencies may be the longer for a resource that alone bounds less.
    """
    name, bounds = schedule["binding_resource"], schedule["bounds"]
    if name in BOUNDS or bounds.get(name, 0.0) >= max(bounds.values(), default=0.0):
        return bound_name(name)
    return say("chains of dependencies, and {resource} between them", resource=name)


def bottleneck(name: str) -> str:
    """What bounds the time, in the few words of a table's cell."""
    return say(SHORT[name]) if name in SHORT else name


BOUNDS = {
    "critical_path": "the longest chain of dependencies",
    "events": "chains of dependencies and the syncs on them",
    "segments": "chains of dependencies and what lies between them",
    "streams": "the work on that many streams",
    "fixed": "the start-up of tasks",
}

SHORT = {
    "critical_path": "longest chain",
    "events": "dependencies, syncs",
    "segments": "dependencies",
    "streams": "work per stream",
    "fixed": "start-up",
    "peers": "other cards",
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
