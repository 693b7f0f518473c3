"""What readers of device profiles and topologies share: complaints with the line concerned."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self, get_args

from gecompiler.backends.device_figures import Allowed, Figure, FigureKind
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.strict_yaml import load_yaml_lines

MAX_BYTES = 256 * 1024
_FIGURE_KEYS = ("value", "source", "kind")
_KINDS: tuple[str, ...] = get_args(FigureKind)

Path_ = tuple[str | int, ...]


class YamlReader:
    """Checks the data of one file; every complaint has its line."""

    def __init__(self, where: str, data: Any, lines: Mapping[Path_, int]) -> None:
        self.where = where
        self.data = data
        self.lines = lines

    @classmethod
    def of_file(cls, path: Path, where: str) -> Self:
        """The reader of a file; UsageError when it cannot be read, is too large or no YAML."""
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=where) from None
        if len(raw) > MAX_BYTES:
            raise UsageError(f"is larger than {MAX_BYTES} bytes", where=where)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError("is not UTF-8 text", where=where) from None
        return cls(where, *load_yaml_lines(text, where))

    def error(self, path: Path_, message: str, hint: str = "") -> UsageError:
        """The complaint, with the line of the nearest thing that stands there."""
        line = next(
            (self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1
        )
        return UsageError(message, where=f"{self.where}:{line}", hint=hint)

    def mapping(
        self, data: Any, path: Path_, what: str, keys: Collection[str] | None = None
    ) -> dict[str, Any]:
        """The data as a mapping that has no other keys."""
        if not isinstance(data, dict):
            raise self.error(path, f"{what} must be a mapping of keys")
        for key in data:
            if keys is not None and key not in keys:
                raise self.error((*path, key), f"unknown key {key!r}", nearest(str(key), keys))
        return data

    def text(self, data: Any, path: Path_, what: str) -> str:
        """The data as text that is not empty."""
        if not isinstance(data, str) or not data.strip():
            raise self.error(path, f"{what} must be given as text, found {data!r}")
        return data

    def version(self, data: Any, expected: int) -> int:
        """The form of the file."""
        if data != expected or isinstance(data, bool):
            raise self.error(("version",), f"'version: {expected}' is expected, found {data!r}")
        return expected

    def names(self, data: Any, path: Path_, what: str) -> tuple[str, ...]:
        """A list of texts."""
        if not isinstance(data, list):
            raise self.error(path, f"{what} must be a list")
        return tuple(self.text(item, (*path, i), what) for i, item in enumerate(data))

    def number(self, data: Any, path: Path_, name: str, allowed: Allowed) -> float:
        """A finite number within what is allowed."""
        number = plain_number(data)
        if number is None:
            raise self.error(
                path,
                f"{name} is {str(data)[:40]!r}, expected a number ({allowed.text})",
                "the unit is in the key's name, the value is a plain number",
            )
        if not allowed.low <= number <= allowed.high:
            raise self.error(
                path,
                f"{name} is {number:g}, which is impossible: {allowed.text}, "
                f"from {allowed.low:g} to {allowed.high:g}",
            )
        return number

    def figure(self, name: str, data: Any, path: Path_) -> dict[str, Any]:
        """The entry of a figure: its value, of which nothing is said yet, source and kind."""
        entry = self.mapping(data, path, f"figure {name!r}", _FIGURE_KEYS)
        for key in _FIGURE_KEYS:
            if key not in entry:
                raise self.error(path, f"figure {name!r} has no {key!r}")
        if entry["kind"] not in _KINDS:
            raise self.error(
                (*path, "kind"),
                f"kind of {name!r} is {entry['kind']!r}, expected one of {', '.join(_KINDS)}",
            )
        self.text(entry["source"], (*path, "source"), f"source of {name!r}")
        return entry

    def numeric_figure(self, name: str, data: Any, path: Path_, allowed: Allowed) -> Figure:
        """A figure whose value is a number."""
        entry = self.figure(name, data, path)
        value = self.number(entry["value"], (*path, "value"), name, allowed)
        return Figure(name, value, entry["source"], entry["kind"])


def plain_number(data: Any) -> float | None:
    """A finite number; also ``1e3``, which YAML 1.1 takes for text."""
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return None
    try:
        number = float(data)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
