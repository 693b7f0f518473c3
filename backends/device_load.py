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

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gecompiler.backends.catalog import Catalog
from gecompiler.backends.device_figures import FIGURES, Figure, FigureValue
from gecompiler.backends.yaml_reader import YamlReader
from gecompiler.ir.errors import nearest

VERSION = 1
_TOP_KEYS = ("version", "name", "description", "aliases", "extends", "figures")


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
    return PROFILES.names()


def read_profile(name_or_path: str) -> Profile:
    """The profile of that built-in name or alias, or of that YAML file; UsageError otherwise."""
    return PROFILES.find(name_or_path)


class _Reader(YamlReader):
    def profile(self) -> Profile:
        top = self.mapping(self.data, (), "a profile", _TOP_KEYS)
        self.version(top.get("version"), VERSION)
        figures = self.base(top["extends"]) if "extends" in top else {}
        given = self.mapping(top.get("figures", {}), ("figures",), "'figures'")
        figures |= {name: self.known_figure(name, entry) for name, entry in given.items()}
        missing = [n for n in FIGURES if n not in figures]
        if missing:
            shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise self.error(
                ("figures",),
                f"{len(missing)} figures are missing: {shown}",
                "give them, or take the rest from a built-in profile with 'extends: ascend910b'",
            )
        return Profile(
            name=self.text(top.get("name"), ("name",), "name"),
            description=self.text(top.get("description", "-"), ("description",), "description"),
            version=VERSION,
            aliases=self.names(top.get("aliases", []), ("aliases",), "aliases"),
            figures=tuple(figures[n] for n in FIGURES),
        )

    def base(self, name: Any) -> dict[str, Figure]:
        if name not in device_names():
            raise self.error(
                ("extends",),
                f"'extends' names {name!r}, which is no built-in profile",
                nearest(str(name), device_names()),
            )
        return {f.name: f for f in PROFILES.built_in(name).figures}

    def known_figure(self, name: Any, data: Any) -> Figure:
        path = ("figures", name)
        if name not in FIGURES:
            raise self.error(path, f"unknown figure {name!r}", _figure_hint(str(name)))
        entry = self.figure(name, data, path)
        return Figure(name, self.value(name, entry["value"]), entry["source"], entry["kind"])

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
        number = self.number(data, path, name, allowed)
        if kind is int and number != int(number):
            raise self.error(path, f"{name} is {number:g}, expected a whole number")
        return int(number) if kind is int else number


def _figure_hint(name: str) -> str:
    with_unit = [n for n in FIGURES if n.startswith(f"{name}_")]
    if with_unit:
        return f"the unit is part of the name: {' or '.join(with_unit)}"
    return nearest(name, FIGURES)


def _read(path: Path, where: str) -> Profile:
    return _Reader.of_file(path, where).profile()


PROFILES = Catalog("device", Path(__file__).resolve().parent / "devices", _read)
"""The built-in devices."""
