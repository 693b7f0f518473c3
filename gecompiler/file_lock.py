"""A lock on a file or folder that goes with the process that holds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock; BlockingIOError when another holds it and ``wait`` is not said.

    It belongs to the file and not to its name. OSError when there is no such file. Where the
    system or the file system has no such locks, nothing is held.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # no waiting for a pipe's writer
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
