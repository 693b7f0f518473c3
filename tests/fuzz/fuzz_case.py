"""A case: files in a folder of their own, and the command that is given them.

A case's folder has ``in`` (what the command reads), ``out`` (where it may write), ``cwd`` (where
it runs) and ``tmp`` (for temporary files, of which none may stay). Arguments name them as
``{in}`` and ``{out}``. A case is determined by its kind and its seed; a kept case is a folder whose
``argv.json`` holds the arguments.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Builder = Callable[[Path, random.Random], list[str]]
"""Writes the files of a case to the folder, and gives the command's arguments."""


@dataclass(frozen=True)
class Case:
    """A case that lies in ``folder``, ready to be run."""

    name: str
    folder: Path
    argv: tuple[str, ...]

    @property
    def writes_a_model(self) -> bool:
        """Whether the command writes all that is known of a compiled model."""
        return "{out}" in self.argv and "--from" not in self.argv

    @property
    def arguments(self) -> list[str]:
        """The arguments with the folders filled in."""
        places = {"{in}": str(self.folder / "in"), "{out}": str(self.folder / "out")}
        found = []
        for argument in self.argv:
            for mark, place in places.items():
                argument = argument.replace(mark, place)  # noqa: PLW2901
            found.append(argument)
        return found


def empty_folder(folder: Path) -> Path:
    """The folders of a case, with nothing in them."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("in", "out", "cwd", "tmp"):
        (folder / part).mkdir(parents=True)
    return folder


def built_case(kind: str, seed: int, builder: Builder, folder: Path) -> Case:
    """The case of that kind and seed; equal seeds give equal files."""
    empty_folder(folder)
    argv = builder(folder / "in", random.Random(f"{kind}:{seed}"))
    return Case(f"{kind}:{seed}", folder, tuple(argv))


def kept_case(source: Path, folder: Path) -> Case:
    """A case that was kept, copied to where it may run."""
    empty_folder(folder)
    shutil.copytree(source / "in", folder / "in", symlinks=True, dirs_exist_ok=True)
    argv = json.loads((source / "argv.json").read_text("utf-8"))
    return Case(f"kept:{source.name}", folder, tuple(argv))


def keep(case: Case, target: Path) -> None:
    """Copies what a case reads, and its arguments, to ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(case.folder / "in", target / "in", symlinks=True, copy_function=_small_file)
    (target / "argv.json").write_text(json.dumps(case.argv) + "\n", "utf-8")


def _small_file(source: str, target: str) -> None:
    if Path(source).is_file() and Path(source).stat().st_size <= 2**20:
        shutil.copy2(source, target)
