"""Several files that take their places together, whatever ends the process that writes them.

They are made in a stage, a folder of its own. A folder that is not there yet is the stage
renamed: there whole or not at all. Into one that is there the files are moved one by one, which
a kill may cut short; so the stage is marked as complete first, and whoever writes into the folder
next or reads it by `settle` finishes what was begun. A stage that is not marked, and whose owner
is gone, is removed: the folder is as it was. Owners hold a lock on their stage, which goes with
their process, and one on the folder while they move, so that of two writers one wins whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gecompiler.file_lock import locked

_COMPLETE = "complete"
_FILES = "files"
_OLD = "old"


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Gives an empty folder whose files appear in ``folder`` if the block succeeds; OSError."""
    settle(folder)
    there = folder.exists()
    if not there:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _new_stage(folder, there) as stage:
        try:
            yield stage / _FILES
            if there or not _appeared(stage / _FILES, folder):
                (stage / _COMPLETE).touch()
                _move_in(stage, folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def settle(folder: Path) -> None:
    """Finishes or removes what killed writers left in the folder or beside it."""
    within = folder.glob(".gec-*.part") if folder.is_dir() else ()
    beside = folder.parent.glob(f".gec-{folder.name}-*.part") if folder.name else ()
    for stage in sorted([*within, *beside]):
        with contextlib.suppress(BlockingIOError, OSError), locked(stage):
            if (stage / _COMPLETE).exists() and folder.is_dir():
                _move_in(stage, folder)
            shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _new_stage(folder: Path, there: bool) -> Iterator[Path]:
    """A stage that is locked before it gets the name by which others know it."""
    where = folder if there else folder.parent
    made = Path(tempfile.mkdtemp(prefix=".gec-", suffix=".new", dir=where))
    with locked(made):
        (made / _FILES).mkdir()
        middle = "" if there else f"{folder.name}-"
        stage = made.rename(where / f".gec-{middle}{made.stem.removeprefix('.gec-')}.part")
        yield stage


def _appeared(files: Path, folder: Path) -> bool:
    """Makes the folder out of the stage; False where somebody else has made it since."""
    try:
        files.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        return False
    return True


def _move_in(stage: Path, folder: Path) -> None:
    """Moves every file of the stage into the folder; puts the old ones back if one cannot be."""
    files, old = stage / _FILES, stage / _OLD
    names = sorted(p.relative_to(files) for p in files.rglob("*") if p.is_file())
    with locked(folder, wait=True):
        moved: list[Path] = []
        try:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                moved.append(name)
                _keep(folder / name, old / name)
                (files / name).replace(folder / name)
        except OSError:
            (stage / _COMPLETE).unlink(missing_ok=True)
            for name in moved:
                if (old / name).is_file():
                    (old / name).replace(folder / name)
                elif not (files / name).is_file():
                    (folder / name).unlink(missing_ok=True)
            raise


def _keep(file: Path, copy: Path) -> None:
    """Keeps the old file; it stays in its place where the file system has links."""
    if not file.is_file() or copy.exists():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, copy)
    except OSError:
        file.replace(copy)
