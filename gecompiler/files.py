"""Reading what users hand in, and writing outputs whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gecompiler.file_lock import locked
from gecompiler.ir import bounded_read
from gecompiler.ir.errors import GecError, UsageError
from gecompiler.whole_folder import staged

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

    What killed processes left of earlier ones is removed.
    """
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
            part = part.rename(path.with_name(f".{path.name}.{part.stem[5:]}.part"))
            yield part
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o666 & ~umask)
            part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def _remove_left(path: Path) -> None:
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(OSError), locked(part):
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
