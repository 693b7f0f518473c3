"""Reading what users hand in, and writing outputs whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gecompiler.file_lock import locked
from gecompiler.ir import bounded_read
from gecompiler.ir.errors import GecError, UsageError
from gecompiler.whole_folder import RANDOM, short_name, staged

MAX_TEXT_BYTES = 64 * 2**20


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file a user names; UsageError when it cannot be read."""
    try:
        return bounded_read.read_text(path, MAX_TEXT_BYTES)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(
            f"{what} cannot be read: {_reason(error)}", where=str(path), hint="check the path"
        ) from None


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class OutputError(GecError):
    """An output could not be written."""

    exit_code = 2


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside ``path`` that becomes ``path`` if the block succeeds.

    What killed processes left of earlier ones is removed. A pipe or device stays what it is: what
    was made is written into it at the end.
    """
    if _is_special(path):
        with _into(path) as part:
            yield part
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path)
        handle, name = tempfile.mkstemp(prefix=".gec-", suffix=".new", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from None
    part = Path(name)
    try:
        with locked(part):
            name = f".{short_name(path.name)}.{part.stem[5:]}.part"
            part = part.rename(path.with_name(name))
            yield part
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o666 & ~umask)
            part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether there is something that is neither a regular file nor a folder, by links too."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _into(path: Path) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="gec-") as folder:
            part = Path(folder) / path.name
            yield part
            with part.open("rb") as made, path.open("wb") as stream:
                shutil.copyfileobj(made, stream)
    except OSError as error:
        raise _unwritable(path, error) from None


def _remove_left(path: Path) -> None:
    name = re.compile(rf"\.{re.escape(short_name(path.name))}\.{RANDOM}\.part")
    for left in os.listdir(path.parent):
        if not name.fullmatch(left):
            continue
        part = path.with_name(left)
        with contextlib.suppress(OSError):
            if stat.S_ISREG(part.lstat().st_mode):
                with locked(part):
                    part.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file whole or not at all; OutputError when it cannot be."""
    with whole_file(Path(path)) as part:
        part.write_text(text, encoding="utf-8")


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot be written: {_reason(error)}",
        where=str(path),
        hint="name another place, or check its permissions and free space",
    )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives an empty folder whose files appear in ``folder`` if the block succeeds; see `staged`.

    OutputError when they cannot be written.
    """
    try:
        with staged(folder) as stage:
            yield stage
    except OSError as error:
        raise _unwritable(folder, error) from None
