"""Reading files that a user names, within bounds."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """What the file holds; OSError also where it holds more than ``most`` bytes, or is a device.

    A pipe is read to its end, since shells give pipes for files.
    """
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise OSError(errno.EINVAL, "this is no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return data


def read_text(path: str | os.PathLike[str], most: int) -> str:
    """The same, as UTF-8 text; UnicodeDecodeError where it is none."""
    return read_bytes(path, most).decode("utf-8").replace("\r\n", "\n")
