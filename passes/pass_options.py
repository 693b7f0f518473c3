"""Options of passes as text: a pass's dataclass fields, read and printed by their types.

Supported field types: ``bool``, ``int``, ``float``, ``str``, an ``Enum`` (by value),
``Literal``, ``T | None`` (``none``) and ``tuple[T, ...]`` (``[1,2]``).
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from enum import Enum
from typing import Any

from gecompiler.ir.errors import GecError, UsageError, nearest
from gecompiler.passes.pass_base import Pass

Text = str | list[str]
"""An option's value as written: a word, or the words of a list."""

_PLAIN = re.compile(r"[^\s,{}\[\]=\"]+")


def option_names(cls: type[Pass]) -> tuple[str, ...]:
    """The options of a pass class as users write them: ``max-elements``."""
    return tuple(f.name.replace("_", "-") for f in dataclasses.fields(cls) if f.init)


def build(cls: type[Pass], options: dict[str, Text]) -> Pass:
    """An instance with those options; UsageError for an unknown one or a wrong value."""
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in option_names(cls):
            raise UsageError(
                f"pass {cls.name!r} has no option {key!r}", hint=nearest(key, option_names(cls))
            )
        field = key.replace("-", "_")
        try:
            values[field] = _read(text, hints[field])
        except ValueError as error:
            raise UsageError(
                f"expected {_describe(hints[field])}, found {_shown(text)}",
                where=f"pass {cls.name!r}, option {key!r}",
            ) from error
    try:
        return cls(**values)
    except GecError:
        raise
    except ValueError as error:
        raise UsageError(str(error), where=f"pass {cls.name!r}") from error


def changed_options(instance: Pass) -> list[tuple[str, str]]:
    """The options that differ from their defaults, as (name, text), in field order."""
    found = []
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not field.init or value == _default(field):
            continue
        found.append((field.name.replace("_", "-"), _print(value)))
    return found


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _read(text: Text, hint: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_union(text, args)
    if origin is tuple:
        if len(args) != 2 or args[1] is not Ellipsis:
            raise TypeError(f"option type {hint} is not supported")
        words = text if isinstance(text, list) else [text]
        return tuple(_read(word, args[0]) for word in words)
    if isinstance(text, list):
        raise ValueError("a list where one value belongs")
    if origin is typing.Literal:
        matching = [a for a in args if str(a) == text]
        if not matching:
            raise ValueError(text)
        return matching[0]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(text)
    if hint is bool:
        return {"true": True, "1": True, "false": False, "0": False}[_known(text)]
    if hint in (int, float, str):
        return hint(text)
    raise TypeError(f"option type {hint} is not supported")


def _read_union(text: Text, args: tuple[Any, ...]) -> Any:
    if type(None) in args and text == "none":
        return None
    for arg in args:
        if arg is not type(None):
            try:
                return _read(text, arg)
            except ValueError:
                continue
    raise ValueError(text)


def _known(text: str) -> str:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return text.lower()


def _describe(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if a is type(None) else _describe(a) for a in args)
    if origin is tuple:
        return f"a list of {_describe(args[0])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(str(m.value) for m in hint)
    names = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    return names.get(hint, str(hint))


def _shown(text: Text) -> str:
    return repr(text) if isinstance(text, str) else "[" + ",".join(text) + "]"


def _print(value: object) -> str:
    if isinstance(value, Enum):
        return _print(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return "[" + ",".join(_print(v) for v in value) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text != "none" else json.dumps(text)
