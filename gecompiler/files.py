"""Reading what users hand in, and writing outputs whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gecompiler.ir.errors import GecError, UsageError

MAX_TEXT_BYTES = 256 * 2**20


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file a user names; UsageError when it cannot be read."""
    try:
        size = os.stat(path).st_size
        if size > MAX_TEXT_BYTES:
            raise UsageError(
                f"{what} has {size} bytes, more than {MAX_TEXT_BYTES}", where=str(path)
            )
        return Path(path).read_text(encoding="utf-8")
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
    """Gives a temporary path beside ``path`` that becomes ``path`` if the block succeeds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from None
    part = Path(name)
    try:
        yield part
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file whole or not at all; OutputError when it cannot be."""
    with whole_file(Path(path)) as part:
        part.write_text(text, encoding="utf-8")


def _move_all(stage: Path, folder: Path) -> None:
    """Moves every file of ``stage`` into ``folder``; puts the old ones back if one cannot be."""
    names = sorted(path.name for path in stage.iterdir())
    kept = Path(tempfile.mkdtemp(prefix=".old-", dir=stage))
    moved: list[str] = []
    try:
        for name in names:
            if (folder / name).is_file():
                (folder / name).replace(kept / name)
            moved.append(name)
            (stage / name).replace(folder / name)
    except OSError:
        for name in moved:
            if (kept / name).is_file():
                (kept / name).replace(folder / name)
            elif (folder / name).is_file():
                (folder / name).unlink()
        raise


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot be written: {_reason(error)}",
        where=str(path),
        hint="name another place, or check its permissions and free space",
    )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives an empty staging folder whose files move into ``folder`` if the block succeeds."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".gec-", suffix=".part", dir=folder))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        yield stage
        _move_all(stage, folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
