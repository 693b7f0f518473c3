"""Built-in YAML files by name or alias, and files of one's own by their path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from gecompiler.ir.errors import UsageError, nearest


class Named(Protocol):
    """What a file says of itself."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names of it."""


Content = TypeVar("Content", bound=Named)


class Catalog(Generic[Content]):
    """The files of one kind in a folder of the package; each is read once.

    ``kind`` says what they are, such as ``device``. ``read`` checks a file and takes what errors
    call it.
    """

    def __init__(self, kind: str, folder: Path, read: Callable[[Path, str], Content]) -> None:
        self.kind = kind
        self.folder = folder
        self._read = read
        self._known: dict[str, Content] = {}

    def names(self) -> tuple[str, ...]:
        """The built-in ones, sorted."""
        return tuple(sorted(p.stem for p in self.folder.glob("*.yaml")))

    def built_in(self, name: str) -> Content:
        """The built-in one of that name."""
        if name not in self._known:
            path = self.folder / f"{name}.yaml"
            self._known[name] = self._read(path, path.name)
        return self._known[name]

    def find(self, name_or_path: str) -> Content:
        """That built-in name, or alias in any case, or that YAML file; UsageError otherwise."""
        if name_or_path.lower().endswith((".yaml", ".yml")):
            path = Path(name_or_path)
            return self._read(path, path.name if path.parent == self.folder else str(path))
        names = self.names()
        if name_or_path in names:
            return self.built_in(name_or_path)
        found = self._by_alias.get(name_or_path.lower())
        if found is not None:
            return self.built_in(found)
        raise UsageError(
            f"no {self.kind} {name_or_path!r}",
            where=self.kind,
            hint=f"{nearest(name_or_path, names)} (a file must end in .yaml)",
        )

    def forget(self) -> None:
        """Reads the files anew from now on, as they have changed."""
        self._known.clear()
        self.__dict__.pop("_by_alias", None)

    @cached_property
    def _by_alias(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.names():
            for alias in (name, *self.built_in(name).aliases):
                found.setdefault(alias.lower(), name)
        return found
