"""Device profiles from YAML, checked figure by figure.

A profile is::

    version: 1
    name: mycard
    description: what people call it      # optional
    aliases: [other, names]               # optional
    extends: ascend910b                   # optional: a built-in profile to take the rest from
    figures:
      hbm_bandwidth_gb_per_s: {value: 1600, source: where it is said, kind: vendor}

``kind`` is ``vendor`` (a datasheet or file of the maker's), ``measured``, or ``derived``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from gecompiler.backends.device_figures import FIGURES, Figure, FigureKind, FigureValue
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.strict_yaml import load_yaml_lines

VERSION = 1
MAX_BYTES = 256 * 1024
_FOLDER = Path(__file__).resolve().parent / "devices"
_TOP_KEYS = ("version", "name", "description", "aliases", "extends", "figures")
_FIGURE_KEYS = ("value", "source", "kind")
_KINDS: tuple[str, ...] = get_args(FigureKind)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile file says, checked."""

    name: str
    description: str
    version: int
    aliases: tuple[str, ...]
    figures: tuple[Figure, ...]


def device_names() -> tuple[str, ...]:
    """The names of the built-in profiles, sorted."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.yaml")))


def read_profile(name_or_path: str) -> Profile:
    """The profile of that built-in name or alias, or of that YAML file; UsageError otherwise."""
    if name_or_path.lower().endswith((".yaml", ".yml")):
        return _read_file(Path(name_or_path))
    if name_or_path in device_names():
        return _built_in(name_or_path)
    found = _aliases().get(name_or_path.lower())
    if found is not None:
        return _built_in(found)
    raise UsageError(
        f"no device {name_or_path!r}",
        where="device",
        hint=f"{nearest(name_or_path, device_names())} (a file must end in .yaml)",
    )


@cache
def _built_in(name: str) -> Profile:
    return _read_file(_FOLDER / f"{name}.yaml")


@cache
def _aliases() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in device_names():
        for alias in (name, *_built_in(name).aliases):
            found.setdefault(alias.lower(), name)
    return found


def _read_file(path: Path) -> Profile:
    where = path.name if path.parent == _FOLDER else str(path)
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
    return _Reader(where, *load_yaml_lines(text, where)).profile()


class _Reader:
    """Checks the data of one file; every complaint has its line."""

    def __init__(self, where: str, data: Any, lines: Mapping[tuple[str | int, ...], int]) -> None:
        self.where = where
        self.data = data
        self.lines = lines

    def error(self, path: tuple[str | int, ...], message: str, hint: str = "") -> UsageError:
        line = next(
            (self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1
        )
        return UsageError(message, where=f"{self.where}:{line}", hint=hint)

    def mapping(
        self, data: Any, path: tuple[str, ...], what: str, keys: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self.error(path, f"{what} must be a mapping of keys")
        for key in data:
            if keys is not None and key not in keys:
                raise self.error((*path, key), f"unknown key {key!r}", nearest(str(key), keys))
        return data

    def text(self, data: Any, path: tuple[str | int, ...], what: str) -> str:
        if not isinstance(data, str) or not data.strip():
            raise self.error(path, f"{what} must be given as text, found {data!r}")
        return data

    def profile(self) -> Profile:
        top = self.mapping(self.data, (), "a profile", _TOP_KEYS)
        version = top.get("version")
        if version != VERSION or isinstance(version, bool):
            raise self.error(("version",), f"'version: {VERSION}' is expected, found {version!r}")
        figures = self.base(top["extends"]) if "extends" in top else {}
        given = self.mapping(top.get("figures", {}), ("figures",), "'figures'")
        figures |= {name: self.figure(name, entry) for name, entry in given.items()}
        missing = [n for n in FIGURES if n not in figures]
        if missing:
            shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise self.error(
                ("figures",),
                f"{len(missing)} figures are missing: {shown}",
                "give them, or take the rest from a built-in profile with 'extends: ascend910b'",
            )
        aliases = top.get("aliases", [])
        if not isinstance(aliases, list):
            raise self.error(("aliases",), "aliases must be a list")
        return Profile(
            name=self.text(top.get("name"), ("name",), "name"),
            description=self.text(top.get("description", "-"), ("description",), "description"),
            version=VERSION,
            aliases=tuple(self.text(a, ("aliases", i), "alias") for i, a in enumerate(aliases)),
            figures=tuple(figures[n] for n in FIGURES),
        )

    def base(self, name: Any) -> dict[str, Figure]:
        if name not in device_names():
            raise self.error(
                ("extends",),
                f"'extends' names {name!r}, which is no built-in profile",
                nearest(str(name), device_names()),
            )
        return {f.name: f for f in _built_in(name).figures}

    def figure(self, name: Any, data: Any) -> Figure:
        path = ("figures", name)
        if name not in FIGURES:
            raise self.error(path, f"unknown figure {name!r}", _figure_hint(str(name)))
        entry = self.mapping(data, path, f"figure {name!r}", _FIGURE_KEYS)
        for key in _FIGURE_KEYS:
            if key not in entry:
                raise self.error(path, f"figure {name!r} has no {key!r}")
        if entry["kind"] not in _KINDS:
            raise self.error(
                (*path, "kind"),
                f"kind of {name!r} is {entry['kind']!r}, expected one of {', '.join(_KINDS)}",
            )
        source = self.text(entry["source"], (*path, "source"), f"source of {name!r}")
        return Figure(name, self.value(name, entry["value"]), source, entry["kind"])

    def value(self, name: str, data: Any) -> FigureValue:
        kind, allowed = FIGURES[name]
        path = ("figures", name, "value")
        if kind is str and allowed.pattern:
            text = self.text(data, path, name)
            if not re.fullmatch(allowed.pattern, text):
                raise self.error(path, f"{name} is {text[:40]!r}: {allowed.text}")
            return text
        if kind is str:
            if data not in allowed.choices:
                wanted = " or ".join(allowed.choices)
                raise self.error(path, f"{name} is {data!r}, expected {wanted}")
            return str(data)
        if kind is bool:
            if not isinstance(data, bool):
                raise self.error(path, f"{name} is {data!r}, expected true or false")
            return data
        number = _number(data)
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
        if kind is int and number != int(number):
            raise self.error(path, f"{name} is {number:g}, expected a whole number")
        return int(number) if kind is int else number


def _number(data: Any) -> float | None:
    """A finite number; also ``1e3``, which YAML 1.1 takes for text."""
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return None
    try:
        number = float(data)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _figure_hint(name: str) -> str:
    with_unit = [n for n in FIGURES if n.startswith(f"{name}_")]
    if with_unit:
        return f"the unit is part of the name: {' or '.join(with_unit)}"
    return nearest(name, FIGURES)
