"""Reading a small YAML file from anywhere: bounded, without aliases or repeated keys, with lines.

PyYAML's events are read first (its parser keeps a stack of its own and does not recurse), so
that a file made to blow up, by aliases, by depth or by size, is refused before anything is built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

import yaml
from yaml.error import Mark

from gecompiler.ir.errors import UsageError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 8
MAX_DIGITS = 40

Scalar = Union[int, float, bool, str, None]


@dataclass(frozen=True, slots=True)
class Item:
    """A value with the line it stands on: a scalar, a list of items, or a mapping of them."""

    line: int
    scalar: Scalar = None
    entries: Mapping[str, Item] | None = None
    elements: tuple[Item, ...] | None = None
    key_lines: Mapping[str, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """The text of a small file; UsageError when it cannot be read, is too big or no UTF-8."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"is larger than {MAX_BYTES} bytes", where=str(path))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text", where=str(path)) from None


def read_yaml(text: str, where: str) -> Item:
    """The one document in ``text``; UsageError with ``where:line`` for anything out of order."""
    try:
        _check_events(text, where)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"no valid YAML: {error.problem}", where=f"{where}{line}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"no valid YAML: {error}", where=where) from None
    if node is None:
        raise UsageError("is empty", where=where)
    return _item(node, where)


def _check_events(text: str, where: str) -> None:
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        place = f"{where}:{_line(event.start_mark)}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UsageError("anchors and aliases are not allowed here", where=place)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise UsageError("a second document begins; one is allowed", where=place)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise UsageError(f"nested deeper than {MAX_DEPTH} levels", where=place)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def _line(mark: Mark | None) -> int:
    return mark.line + 1 if mark is not None else 1


def _item(node: yaml.Node, where: str) -> Item:
    line = _line(node.start_mark)
    if isinstance(node, yaml.ScalarNode):
        return Item(line, scalar=_scalar(node, f"{where}:{line}"))
    if isinstance(node, yaml.SequenceNode):
        return Item(line, elements=tuple(_item(n, where) for n in node.value))
    entries: dict[str, Item] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        place = f"{where}:{_line(key_node.start_mark)}"
        key = _scalar(key_node, place) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            raise UsageError("a key must be plain text", where=place)
        if key in entries:
            raise UsageError(f"key {key!r} stands twice (first on line {lines[key]})", where=place)
        entries[key] = _item(value_node, where)
        lines[key] = _line(key_node.start_mark)
    return Item(line, entries=entries, key_lines=lines)


def _scalar(node: yaml.ScalarNode, place: str) -> Scalar:
    kind: str = node.tag.rsplit(":", 1)[-1]
    text: str = node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    number = _number(text) if kind in ("int", "float") or not node.style else None
    if number is not None:
        return number
    if kind in ("int", "float"):
        raise UsageError(f"{text[:MAX_DIGITS]!r} is no plain finite number", where=place)
    if kind not in ("str", "timestamp"):
        raise UsageError(f"YAML tag {node.tag!r} is not allowed here", where=place)
    return text


def _number(text: str) -> int | float | None:
    """A decimal number; also ``1e3``, which YAML 1.1 takes for text. None for anything else."""
    if len(text) > MAX_DIGITS or not any(c.isdigit() for c in text) or "_" in text:
        return None
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
