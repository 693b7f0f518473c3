"""Tables of comma-separated values, read row by row: a capture may have a million rows."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterator
from io import TextIOBase
from pathlib import Path

from gecompiler.ir.errors import UsageError

MAX_CELL = 1 << 20
"""A row of a fused optimiser lists thousands of shapes in one cell."""

MAX_LINE = 1 << 22
"""A longer line is no row."""

MAX_BYTES = 4 << 30
"""A larger file is not read."""

Row = tuple[int, list[str]]


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], Iterator[Row]]:
    """The header, and an iterator of line number and cells of each row after it.

    Bytes that are no text spoil their row alone. UsageError, also while iterating, for a file
    that cannot be read, is empty or is no such table.
    """
    where = os.fspath(path)
    check_size(Path(path))
    rows = _rows(where)
    _, header = next(rows, (1, []))
    if not any(cell.strip() for cell in header):
        raise UsageError("is empty", where=where, hint="expected a header and a row per operator")
    if any("\ufffd" in cell for cell in header):
        raise UsageError(
            "the profile cannot be read: it is no text in UTF-8", where=where, hint="check the path"
        )
    return header, rows


def check_size(path: Path) -> None:
    """UsageError for a file that is not there or too large to be a profile."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("this is no regular file")
        size = status.st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"the profile cannot be read: {reason}", where=str(path), hint="check the path"
        ) from None
    if size > MAX_BYTES:
        raise UsageError(f"the profile has {size} bytes, more than {MAX_BYTES}", where=str(path))


def _rows(where: str) -> Iterator[Row]:
    limit = csv.field_size_limit()
    try:
        with Path(where).open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(_lines(file, where))
            while True:
                csv.field_size_limit(MAX_CELL)
                row = next(reader, None)
                csv.field_size_limit(limit)
                if row is None:
                    return
                yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"is no table of comma-separated values: {error}", where=where) from None
    except OSError as error:
        raise UsageError(
            f"the profile cannot be read: {error.strerror}", where=where, hint="check the path"
        ) from None
    finally:
        csv.field_size_limit(limit)


def _lines(file: TextIOBase, where: str) -> Iterator[str]:
    while line := file.readline(MAX_LINE):
        if len(line) >= MAX_LINE:
            raise UsageError(f"a line has more than {MAX_LINE} characters", where=where)
        yield line
