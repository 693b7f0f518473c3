"""Reading and writing named arrays (.npz), without ever unpickling."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gecompiler.files import whole_file
from gecompiler.ir.errors import UsageError

UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,  # an encrypted archive, or (NotImplementedError) a compression unknown to Python
)


def load_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of an .npz by name; UsageError when it is none."""
    try:
        with open(path, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("one array without a name (.npy)")
            with archive:
                _check_size(archive)
                return {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"no archive of arrays: {reason}",
            where=str(path),
            hint="expected an .npz file, as numpy.savez(path, name=array, ...) writes it",
        ) from None


def _check_size(archive: Any) -> None:
    """ValueError when the arrays take more memory than there is: a small archive can grow."""
    from gecompiler.backends.execution.arena import available_memory

    size, spare = sum(entry.file_size for entry in archive.zip.infolist()), available_memory()
    if spare is not None and size > spare:
        raise ValueError(f"its arrays take {size} bytes, {spare} are available")


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Writes an .npz whole or not at all."""
    with whole_file(Path(path)) as part, part.open("wb") as stream:
        named: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        np.savez(stream, **named)
