"""Warnings for the user, gathered through a compilation and shown in its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Warning_:  # noqa: N801  (`Warning` is a builtin)
    """One warning: a stable ``code``, the message, and what to do about it."""

    code: str
    message: str
    hint: str = ""


class Diagnostics:
    """The warnings so far, in order; the same warning is kept once."""

    def __init__(self) -> None:
        self._warnings: dict[Warning_, None] = {}

    def warn(self, code: str, message: str, hint: str = "") -> None:
        """Adds a warning."""
        self._warnings[Warning_(code, message, hint)] = None

    def __iter__(self) -> Iterator[Warning_]:
        return iter(self._warnings)

    def __len__(self) -> int:
        return len(self._warnings)

    def __bool__(self) -> bool:
        return True  # also without warnings: ``diagnostics or Diagnostics()`` must keep this one
