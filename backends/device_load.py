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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from gecompiler.backends.device_figures import FIGURES, Figure, FigureKind, FigureValue
from gecompiler.backends.device_yaml import Item, read_text, read_yaml
from gecompiler.ir.errors import UsageError, nearest

VERSION = 1
_FOLDER = Path(__file__).resolve().parent / "devices"
_TOP_KEYS = ("version", "name", "description", "aliases", "extends", "figures")
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
    return _profile(read_yaml(read_text(path), where), where)


def _profile(root: Item, where: str) -> Profile:
    top = _mapping(root, where, "a profile")
    for key in top:
        if key not in _TOP_KEYS:
            raise UsageError(
                f"unknown key {key!r}",
                where=f"{where}:{root.key_lines[key]}",
                hint=nearest(key, _TOP_KEYS),
            )
    version = top["version"].scalar if "version" in top else None
    if version != VERSION or isinstance(version, bool):
        line = top["version"].line if "version" in top else root.line
        raise UsageError(
            f"'version: {VERSION}' is expected, found {version!r}", where=f"{where}:{line}"
        )
    base = _base(top.get("extends"), where)
    figures = {f.name: f for f in base.figures} if base else {}
    if "figures" in top:
        figures.update(_figures(top["figures"], where))
    missing = [n for n in FIGURES if n not in figures]
    if missing:
        line = top["figures"].line if "figures" in top else root.line
        raise UsageError(
            f"{len(missing)} figures are missing: {', '.join(missing[:5])}"
            + (", ..." if len(missing) > 5 else ""),
            where=f"{where}:{line}",
            hint="give them, or take the rest from a built-in profile with 'extends: ascend910b'",
        )
    return Profile(
        name=_text(top.get("name"), where, "name", root.line),
        description=_text(top.get("description"), where, "description", root.line, default=""),
        version=VERSION,
        aliases=_texts(top.get("aliases"), where),
        figures=tuple(figures[n] for n in FIGURES),
    )


def _base(item: Item | None, where: str) -> Profile | None:
    if item is None:
        return None
    name = _text(item, where, "extends", item.line)
    if name not in device_names():
        raise UsageError(
            f"'extends' names {name!r}, which is no built-in profile",
            where=f"{where}:{item.line}",
            hint=nearest(name, device_names()),
        )
    return _built_in(name)


def _figures(item: Item, where: str) -> dict[str, Figure]:
    entries = _mapping(item, where, "'figures'")
    return {
        name: _figure(name, value, where, item.key_lines[name]) for name, value in entries.items()
    }


def _figure(name: str, item: Item, where: str, line: int) -> Figure:
    place = f"{where}:{line}"
    if name not in FIGURES:
        raise UsageError(f"unknown figure {name!r}", where=place, hint=_figure_hint(name))
    entries = _mapping(item, where, f"figure {name!r}")
    for key in entries:
        if key not in ("value", "source", "kind"):
            raise UsageError(
                f"figure {name!r} has no {key!r}",
                where=f"{where}:{item.key_lines[key]}",
                hint=nearest(key, ("value", "source", "kind")),
            )
    if "value" not in entries:
        raise UsageError(f"figure {name!r} has no value", where=place)
    kind = _text(entries.get("kind"), where, f"kind of {name}", line)
    if kind not in _KINDS:
        raise UsageError(
            f"kind of {name!r} is {kind!r}, expected one of {', '.join(_KINDS)}", where=place
        )
    source = _text(entries.get("source"), where, f"source of {name}", line)
    value = _value(name, entries["value"], where)
    return Figure(name, value, source, kind)  # type: ignore[arg-type]


def _figure_hint(name: str) -> str:
    with_unit = [n for n in FIGURES if n.startswith(f"{name}_")]
    if with_unit:
        return f"the unit is part of the name: {' or '.join(with_unit)}"
    return nearest(name, FIGURES)


def _value(name: str, item: Item, where: str) -> FigureValue:
    kind, allowed = FIGURES[name]
    place = f"{where}:{item.line}"
    value = item.scalar
    if kind is str:
        if value not in allowed.choices:
            wanted = " or ".join(allowed.choices)
            raise UsageError(f"{name} is {value!r}, expected {wanted}", where=place)
        return str(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}, expected true or false", where=place)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(
            f"{name} is {value!r}, expected a number ({allowed.text})",
            where=place,
            hint="the unit is in the key's name, the value is a plain number",
        )
    if kind is int and value != int(value):
        raise UsageError(f"{name} is {value}, expected a whole number", where=place)
    if not allowed.low <= value <= allowed.high:
        raise UsageError(
            f"{name} is {value}, which is impossible: {allowed.text}, "
            f"from {allowed.low:g} to {allowed.high:g}",
            where=place,
        )
    return int(value) if kind is int else float(value)


def _mapping(item: Item, where: str, what: str) -> Mapping[str, Item]:
    if item.entries is None:
        raise UsageError(f"{what} must be a mapping of keys", where=f"{where}:{item.line}")
    return item.entries


def _text(item: Item | None, where: str, what: str, line: int, default: str | None = None) -> str:
    if item is None and default is not None:
        return default
    value = item.scalar if item is not None else None
    if not isinstance(value, str) or not value.strip():
        place = f"{where}:{item.line if item is not None else line}"
        raise UsageError(f"{what} must be given as text", where=place)
    return value


def _texts(item: Item | None, where: str) -> tuple[str, ...]:
    if item is None:
        return ()
    if item.elements is None:
        raise UsageError("aliases must be a list", where=f"{where}:{item.line}")
    return tuple(_text(e, where, "an alias", e.line) for e in item.elements)
