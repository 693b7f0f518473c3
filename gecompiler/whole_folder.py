"""Several files that take their places together, whatever ends the process that writes them.

They are made in a stage, a folder of its own. A folder that is not there yet is the stage
renamed: there whole or not at all. Into one that is there the files are moved one by one, which
a kill may cut short; so the stage is marked as complete first, and whoever writes into the folder
next or reads it by `settle` finishes what was begun. A stage that is not marked, and whose owner
is gone, is removed: the folder is as it was. Owners hold a lock on their stage, which goes with
their process, and one on the folder while they move, so that of two writers one wins whole.

A folder may have been prepared by somebody else: what looks like a stage but is another user's
or has links in it is left alone, and nothing is written through a link within the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gecompiler.file_lock import locked

RANDOM = "[a-z0-9_]{8}"
"""What `tempfile` puts into a name."""
LONGEST = 200
"""Bytes of a name that more can be added to: file systems take 255."""

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
        yield stage / _FILES
        if there or not _appeared(stage / _FILES, folder):
            (stage / _COMPLETE).touch()
            _move_in(stage, folder)


def settle(folder: Path) -> None:
    """Finishes or removes what killed writers left in the folder or beside it."""
    beside = _stages(folder.parent, f".gec-{short_name(folder.name)}-") if folder.name else []
    for stage in [*_stages(folder, ".gec-"), *beside]:
        with contextlib.suppress(BlockingIOError, OSError), locked(stage):
            if (stage / _COMPLETE).exists() and folder.is_dir():
                _move_in(stage, folder)
            shutil.rmtree(stage, ignore_errors=True)


def _stages(where: Path, start: str) -> list[Path]:
    """Stages of that name and no other folder's, such as this user's writers make them."""
    name = re.compile(re.escape(start) + RANDOM + r"\.part")
    try:
        found = sorted(n for n in os.listdir(where) if name.fullmatch(n))
    except OSError:
        return []
    return [where / n for n in found if _is_stage(where / n)]


def _is_stage(path: Path) -> bool:
    """Whether it is a folder of this user's with nothing but folders and regular files."""
    try:
        there = path.lstat()
        own = not hasattr(os, "geteuid") or there.st_uid == os.geteuid()
        return own and stat.S_ISDIR(there.st_mode) and all(map(_is_plain, path.rglob("*")))
    except OSError:
        return False


def _is_plain(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def short_name(name: str) -> str:
    """A file's or folder's name, or what stands for one that is too long to be added to."""
    raw = os.fsencode(name)
    return name if len(raw) <= LONGEST else hashlib.sha256(raw).hexdigest()


@contextmanager
def _new_stage(folder: Path, there: bool) -> Iterator[Path]:
    """A stage that is locked before it gets the name by which others know it."""
    where = folder if there else folder.parent
    made = Path(tempfile.mkdtemp(prefix=".gec-", suffix=".new", dir=where))
    stage = made
    try:
        with locked(made):
            (made / _FILES).mkdir()
            middle = "" if there else f"{short_name(folder.name)}-"
            stage = made.rename(where / f".gec-{middle}{made.stem.removeprefix('.gec-')}.part")
            yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


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
                _refuse_links(folder, name)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                moved.append(name)
                _keep(folder / name, old / name)
                (files / name).replace(folder / name)
        except OSError:
            (stage / _COMPLETE).unlink(missing_ok=True)
            for name in moved:
                if os.path.lexists(old / name):
                    (old / name).replace(folder / name)
                elif not (files / name).is_file():
                    (folder / name).unlink(missing_ok=True)
            raise


def _refuse_links(folder: Path, name: Path) -> None:
    """OSError where a folder on the way to the file is a link, which may lead anywhere."""
    for parent in name.parents[:-1]:
        if (folder / parent).is_symlink():
            raise OSError(errno.ELOOP, "a link leads out of it", str(folder / parent))


def _keep(file: Path, copy: Path) -> None:
    """Keeps the old file; it stays in its place where the file system has links."""
    if not os.path.lexists(file) or os.path.lexists(copy):
        return
    if stat.S_ISDIR(file.lstat().st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        file.replace(copy)
