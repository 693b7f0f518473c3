"""YAML from strangers: safe types only, no duplicate keys, no anchors, bounded depth and size.

Anchors and aliases are refused: nothing here needs them, and they are how a small file grows
without bound.
"""

from __future__ import annotations

from typing import Any

import yaml

from gecompiler.ir.errors import UsageError

MAX_DEPTH = 32
MAX_NODES = 200_000
MAX_CHARACTERS = 16 * 2**20


def load_yaml(text: str, where: str) -> Any:
    """The data that ``text`` holds; UsageError with the line of what is wrong."""
    return _load(text, where).data


def load_yaml_lines(text: str, where: str) -> tuple[Any, dict[tuple[str | int, ...], int]]:
    """The data, and the line (from 1) of every key and item by its path."""
    found = _load(text, where)
    return found.data, found.lines


class _Loaded:
    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[tuple[str | int, ...], int] = {}
        self.data: Any = None
        self.count = 0


def _load(text: str, where: str) -> _Loaded:
    found = _Loaded(where)
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"more than {MAX_CHARACTERS} characters", where=where)
    try:
        _scan(text, where)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            found.data = _build(node, found, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{where}:{mark.line + 1}" if mark is not None else where
        raise UsageError(
            f"no valid YAML: {getattr(error, 'problem', None) or error}", where=line
        ) from None
    return found


def _scan(text: str, where: str) -> None:
    """Refuses anchors, tags and deep nesting before any tree is built. Streaming, no recursion."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        line = f"{where}:{event.start_mark.line + 1}" if event.start_mark else where
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UsageError("anchors and aliases are not taken", where=line)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise UsageError(f"the tag {tag!r} is not taken", where=line)
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise UsageError(f"more than {MAX_DEPTH} levels or {MAX_NODES} items", where=line)


def _build(node: yaml.Node, found: _Loaded, path: tuple[str | int, ...]) -> Any:
    found.lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, found, path)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, found, (*path, i)) for i, item in enumerate(node.value)]
    return _scalar(node, found.where)


def _build_mapping(
    node: yaml.MappingNode, found: _Loaded, path: tuple[str | int, ...]
) -> dict[Any, Any]:
    data: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        where = f"{found.where}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise UsageError("a key must be a plain word or number", where=where)
        key = _scalar(key_node, found.where)
        if key in data:
            raise UsageError(f"key {key!r} stands there twice", where=where)
        data[key] = _build(value_node, found, (*path, key))
        found.lines[*path, key] = key_node.start_mark.line + 1
    return data


def _scalar(node: yaml.Node, where: str) -> Any:
    constructor = yaml.constructor.SafeConstructor()
    try:
        return constructor.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        line = f"{where}:{node.start_mark.line + 1}"
        raise UsageError(f"a value that is not taken: {error}", where=line) from None
