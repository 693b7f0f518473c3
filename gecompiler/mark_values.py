"""Checks of what users note on ops by name: labels, priorities, limits of cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gecompiler.ir.errors import UsageError
from gecompiler.sizes import whole_number

MOST_PRIORITY = 1_000_000


def check_label(value: Any) -> str:
    """A stream label; ValueError with what was expected."""
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value
    raise ValueError("a stream label, some printable text")


def check_priority(value: Any) -> int:
    """A priority; ValueError with what was expected."""
    number = whole_number(value)
    if number is not None and abs(number) <= MOST_PRIORITY:
        return number
    raise ValueError(f"a priority, a whole number up to {MOST_PRIORITY}")


def check_cores(value: Any) -> tuple[int | None, int | None]:
    """(cube cores, vector cores); ValueError with what was expected."""
    if isinstance(value, Mapping):
        if not value or set(value) - {"cube", "vector"}:
            raise ValueError("numbers of cube and of vector cores")
        value = (value.get("cube"), value.get("vector"))
    if isinstance(value, list | tuple) and len(value) == 2:
        cube, vector = (None if v is None else whole_number(v) or 0 for v in value)
        if all(n is None or n >= 1 for n in (cube, vector)):
            return cube, vector
    raise ValueError("numbers of cube and of vector cores from 1, such as (8, 16)")


def checked_marks(given: Any, where: str, check: Callable[[Any], Any]) -> dict[str, Any]:
    """Marks by name; UsageError names the one at fault."""
    if not isinstance(given, Mapping):
        raise UsageError(f"expected names and values, found {given!r}", where=where)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"expected a name, found {name!r}", where=where)
        try:
            found[name] = check(value)
        except ValueError as error:
            raise UsageError(
                f"expected {error} for {name!r}, found {value!r}", where=where
            ) from None
    return found
