"""Finished points, kept on disk so that an interrupted sweep goes on where it stopped.

A text file: a line that says which sweep it is of, then a line per finished point, each with a
checksum. A line is appended in one write and forced to the disk before the point counts as
finished, so that neither Ctrl-C nor a kill loses any; the half line that a crash in the midst of
a write may leave does not match its checksum and is dropped.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from gecompiler.files import OutputError
from gecompiler.ir.bounded_read import read_bytes
from gecompiler.ir.errors import UsageError
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row

_KIND = "gecompiler sweep 1"
MAX_BYTES = 2**28


class Journal:
    """The finished points of one sweep; a context manager that reads the file and holds it open.

    ``key`` says which sweep: a journal of another model, device or option is refused
    (UsageError), since its rows would be wrong here; so is one that another sweep holds open.
    ``fresh`` forgets what is there.
    """

    def __init__(self, path: Path, key: str, *, fresh: bool = False) -> None:
        self.path = path
        self._key = key
        self._fresh = fresh
        self._file: IO[bytes] | None = None
        self.rows: dict[Point, Row] = {}
        if not fresh and path.exists():
            try:
                if path.is_fifo():  # which nobody may ever write into
                    raise OSError(errno.EINVAL, "this is no regular file")
                self._load(read_bytes(path, MAX_BYTES))
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                raise UsageError(reason, where=str(path)) from None

    def _load(self, text: bytes) -> None:
        if not text:
            return
        lines = text.split(b"\n")
        head = _unsealed(lines[0])
        if head is None or head.get("kind") != _KIND:
            raise UsageError(
                "is not the journal of a sweep",
                where=str(self.path),
                hint="name another file with --journal, or overwrite this one with --fresh",
            )
        if head.get("key") != self._key:
            raise UsageError(
                "is of another sweep: the model, a device, an option or the version has changed",
                where=str(self.path),
                hint="--fresh begins anew; --journal FILE keeps both",
            )
        for line in lines[1:]:
            data = _unsealed(line)
            if data is not None:
                row = Row.from_dict(data)
                self.rows[row.point] = row

    def __enter__(self) -> Journal:
        file: IO[bytes] | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+b", buffering=0)
            self._lock(file)
            self._begin(file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OutputError(f"cannot be written: {reason}", where=str(self.path)) from None
        finally:
            if file is not None and self._file is None:
                file.close()
        return self

    def _lock(self, file: IO[bytes]) -> None:
        """Keeps a second sweep from the same journal; the lock goes with the process."""
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "is in use: another sweep is writing it",
                where=str(self.path),
                hint="wait for it, or name another file with --journal",
            ) from None
        except OSError:  # a file system without locks
            return

    def _begin(self, file: IO[bytes]) -> None:
        """Reads what is there and makes the file end with a whole line."""
        if self._fresh:
            file.truncate(0)
        file.seek(0)
        text = file.read()
        self.rows = {}  # another sweep may have gone on with it in the meantime
        if text:
            self._load(text)
            if not text.endswith(b"\n"):
                file.write(b"\n")  # what a crash left of a line is no longer the last one
        else:
            file.write(_sealed({"kind": _KIND, "key": self._key}))
        self._file = file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, row: Row) -> None:
        """Keeps a finished point; on disk when this returns."""
        if self._file is None:
            raise ValueError("the journal is not open")
        try:
            line = _sealed(row.as_dict())
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror}", where=str(self.path)
            ) from None
        self.rows[row.point] = row

    def missing(self, points: Iterable[Point]) -> list[Point]:
        """Those that are not finished; points that failed are tried again."""
        return [p for p in points if p not in self.rows or self.rows[p].error]


def _sealed(data: dict[str, object]) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _unsealed(line: bytes) -> dict[str, object] | None:
    checksum, _, text = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
