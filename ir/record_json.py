"""Frozen dataclasses as plain JSON data and back, checked field by field.

What a field may hold is read off its annotation: ``int``, ``float``, ``str``, ``Literal``,
another dataclass, ``X | None``, ``tuple[X, ...]`` and ``tuple[X, Y]``. Numbers are finite and
lie in the field's range; JSON's true and false are no numbers.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gecompiler.ir.errors import nearest

Range = tuple[int, int]
SIZE: Range = (0, 2**63 - 1)
"""The range of numbers unless another is given."""

Reader = Callable[[Any], Any]
Writer = Callable[[Any], Any]


class JsonError(ValueError):
    """Data that is not what a field holds; ``path`` leads to it, innermost step first."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.path: list[str | int] = []

    @property
    def place(self) -> str:
        """The path as people write it: ``tasks[3].demand.tiles``."""
        steps = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in reversed(self.path))
        return "".join(steps).lstrip(".")


# -------------------------------------------------------------------- writing


def record_writer(cls: type, kept: Mapping[type, frozenset[str]]) -> Writer:
    """A function that gives a record of that dataclass as a dict.

    Fields at their default are left out unless ``kept`` names them.
    """
    hints = get_type_hints(cls)
    keep = kept.get(cls, frozenset())
    plan = [
        (name, MISSING if name in keep else default, _writer(hints[name], kept))
        for name, default in _defaults(cls).items()
    ]

    def write(record: Any) -> dict[str, Any]:
        found = {}
        for name, default, writer in plan:
            value = getattr(record, name)
            if value != default:
                found[name] = value if writer is None or value is None else writer(value)
        return found

    return write


def _writer(hint: Any, kept: Mapping[type, frozenset[str]]) -> Writer | None:
    """How values of that annotation are written; None where they are JSON already."""
    if hint is float:
        return _written_number
    if get_origin(hint) is tuple:
        items = [_writer(arg, kept) for arg in get_args(hint) if arg is not Ellipsis]
        if items == [None]:
            return list
        if len(items) == 1:
            (item,) = items
            return lambda values: [item(v) for v in values]  # type: ignore[misc]
        return lambda row: [v if w is None else w(v) for w, v in zip(items, row, strict=True)]
    return record_writer(hint, kept) if is_dataclass(hint) else None  # type: ignore[arg-type]


def _written_number(value: float) -> float | int:
    """A whole number without its point, as long as reading gives the same float back."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value


def _defaults(cls: type) -> dict[str, Any]:
    """The default of every field, MISSING where it has none."""
    return {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(cls)
    }


# -------------------------------------------------------------------- reading


def record_reader(cls: type, ranges: Mapping[tuple[type, str], Range]) -> Reader:
    """A function that reads a dict into that dataclass; it raises JsonError."""
    hints = get_type_hints(cls)
    readers = {f.name: _reader(hints[f.name], ranges, (cls, f.name)) for f in fields(cls)}
    required = frozenset(name for name, default in _defaults(cls).items() if default is MISSING)

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise JsonError(f"expected an object, found {_shown(data)}")
        values = {}
        for key, value in data.items():
            reader = readers.get(key)
            if reader is None:
                raise JsonError(f"{key!r} is no key of this object", nearest(str(key), readers))
            try:
                values[key] = reader(value)
            except JsonError as error:
                error.path.append(key)
                raise
        if not required <= values.keys():
            missing = ", ".join(repr(name) for name in sorted(required - values.keys()))
            raise JsonError(f"the object lacks {missing}")
        return cls(**values)

    return read


def _reader(hint: Any, ranges: Mapping[tuple[type, str], Range], key: tuple[type, str]) -> Reader:
    origin, args = get_origin(hint), get_args(hint)
    if hint is str:
        return _read_text
    if hint is int:
        return _integer_reader(*ranges.get(key, SIZE))
    if hint is float:
        return _number_reader(*ranges.get(key, SIZE))
    if origin is Literal:
        return _choice_reader(args)
    if origin in (Union, types.UnionType):
        (inner,) = (_reader(arg, ranges, key) for arg in args if arg is not type(None))
        return lambda data: None if data is None else inner(data)
    if origin is tuple and args[-1] is Ellipsis:
        return _list_reader(_reader(args[0], ranges, key))
    if origin is tuple:
        return _row_reader([_reader(arg, ranges, key) for arg in args])
    if is_dataclass(hint):
        return record_reader(hint, ranges)  # type: ignore[arg-type]
    raise TypeError(f"no JSON form for {hint} of {key}")


def _read_text(data: Any) -> Any:
    if type(data) is not str:
        raise JsonError(f"expected a string, found {_shown(data)}")
    return data


def _integer_reader(low: int, high: int) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not int or not low <= data <= high:
            raise JsonError(f"expected an integer {_range(low, high)}, found {_shown(data)}")
        return data

    return read


def _number_reader(low: int, high: int) -> Reader:
    def read(data: Any) -> Any:
        if type(data) not in (int, float) or not math.isfinite(data) or not low <= data <= high:
            raise JsonError(f"expected a number {_range(low, high)}, found {_shown(data)}")
        return float(data)

    return read


def _choice_reader(choices: tuple[str, ...]) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not str or data not in choices:
            known = ", ".join(map(repr, choices))
            raise JsonError(f"expected one of {known}, found {_shown(data)}")
        return data

    return read


def _list_reader(item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not list:
            raise JsonError(f"expected a list, found {_shown(data)}")
        found: list[Any] = []
        try:
            for entry in data:
                found.append(item(entry))  # noqa: PERF401  (its length is the index at fault)
        except JsonError as error:
            error.path.append(len(found))
            raise
        return tuple(found)

    return read


def _row_reader(items: list[Reader]) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not list or len(data) != len(items):
            raise JsonError(f"expected a list of {len(items)}, found {_shown(data)}")
        found: list[Any] = []
        try:
            for reader, entry in zip(items, data, strict=True):
                found.append(reader(entry))
        except JsonError as error:
            error.path.append(len(found))
            raise
        return tuple(found)

    return read


def _range(low: int, high: int) -> str:
    return f"of at least {low}" if high >= SIZE[1] else f"from {low} to {high}"


def _shown(data: Any) -> str:
    if isinstance(data, (dict, list)):
        return f"{'an object' if isinstance(data, dict) else 'a list'} of {len(data)}"
    if data is None or isinstance(data, bool):
        return "null" if data is None else str(data).lower()
    text = repr(data)
    return text if len(text) <= 40 else f"{text[:40]}..."
