"""The device's memory in a run: one array of bytes in which tensors have planned addresses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from gecompiler.backends.execution.packing import nbytes, pack, unpack
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import GecError, LargerThanPlannedError, ScheduleError
from gecompiler.ir.schedule import Buffer
from gecompiler.ir.types import DType

UNWRITTEN = 0xFF
"""What memory holds before anything is written: NaN in every float type, -1 in signed integers."""


class Arena:
    """Memory of ``size`` bytes. GecError when the host has not that much to spare."""

    def __init__(self, size: int, where: str) -> None:
        spare = available_memory()
        if spare is not None and size > spare:
            raise GecError(
                f"running needs {_gib(size)} of memory for its tensors, {_gib(spare)} is available",
                where=where,
                hint="compile for a smaller batch or sequence, or fewer layers",
            )
        try:
            self.bytes: Array = np.full(size, UNWRITTEN, np.uint8)
        except (MemoryError, ValueError):
            raise GecError(f"no {_gib(size)} of memory could be had", where=where) from None

    def write(self, buffer: Buffer, dtype: DType, array: Array, where: str) -> None:
        """Stores ``array`` at the buffer's address; LargerThanPlannedError if it is no fit."""
        raw = pack(array, dtype)
        if raw.size > buffer.bytes:
            raise LargerThanPlannedError(
                f"tensor {buffer.tensor!r} came out as {list(array.shape)}, {raw.size} bytes, "
                f"where {buffer.bytes} bytes are planned",
                where=where,
                hint="its size depends on the data; compile for sizes that bound it",
            )
        self._region(buffer, raw.size)[...] = raw

    def read(self, buffer: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The tensor at the buffer's address, a view of the memory where its layout allows."""
        return unpack(self._region(buffer, nbytes(dtype, shape)), dtype, shape)

    def holds(self, array: Array) -> bool:
        """Whether ``array`` may be a view of this memory."""
        return bool(np.may_share_memory(array, self.bytes))

    def _region(self, buffer: Buffer, size: int) -> Array:
        end = buffer.offset + size
        if buffer.offset < 0 or end > self.bytes.size:
            raise ScheduleError(
                f"tensor {buffer.tensor!r} is planned at bytes [{buffer.offset}, {end}) "
                f"of an arena of {self.bytes.size}"
            )
        return self.bytes[buffer.offset : end]


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, None where the system does not tell.

    The least of what Linux calls MemAvailable and what is left of the control group's limit.
    """
    found = [size for size in (_mem_available(), _group_left()) if size is not None]
    if found:
        return min(found)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _mem_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _group_left() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        return max(0, int(limit) - used) if limit != "max" else None
    except (OSError, ValueError):
        return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
