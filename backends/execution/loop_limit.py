"""Loops without an end are ended: onnxruntime is told to stop from another thread.

A model may ask for 2**62 rounds, or for as many as it takes. What is sure to be short runs as
long as it needs; any other loop may take `SECONDS` and `BYTES`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gecompiler.backends.execution.node_model import Call
from gecompiler.ir.errors import ModelError

SHORT_ROUNDS = 100_000
SECONDS = 5.0
"""Of the process's time, so that a busy machine makes no difference."""
BYTES = 2**29
_PERIOD_S = 0.05


class EndlessLoopError(ModelError):
    """A loop that was ended."""

    def __init__(self) -> None:
        super().__init__(
            f"the loop did not end within {SECONDS:g} s and {BYTES >> 20} MiB",
            hint=f"a trip count of at most {SHORT_ROUNDS} lets it run as long as it needs",
        )


class GrowthError(EndlessLoopError):
    """Bodies that were ended since they took too much memory, however few rounds they run."""

    def __init__(self, size: int) -> None:
        ModelError.__init__(
            self,
            f"its bodies take more than {size >> 20} MiB of the host's memory",
            hint="if that is meant: --host-memory 8GiB, option host_memory; else smaller sizes",
        )


class Rounds:
    """How long a loop in Python has run; `count` each round."""

    def __init__(self) -> None:
        self._until = time.process_time() + SECONDS
        self._done = 0

    def count(self) -> None:
        """Counts a round; EndlessLoopError when there were many and they took too long."""
        self._done += 1
        if self._done > SHORT_ROUNDS and time.process_time() > self._until:
            raise EndlessLoopError


def grows_unseen(call: Call) -> bool:
    """Whether the op has bodies, whose values are made where nobody looks at their sizes."""
    return bool(call.op.attrs) and bool(call.op.bodies)


def may_be_endless(call: Call) -> bool:
    """Whether the op is a Loop of unknown or many rounds, or holds a Loop in its bodies."""
    op = call.op
    if not op.attrs or not op.bodies:
        return False
    left = [*op.bodies]
    while left:
        for inner in left.pop().ops:
            if inner.is_("Loop"):
                return True
            if inner.attrs:
                left += inner.bodies
    if not op.is_("Loop"):
        return False
    count = call.values[0] if call.values else None
    return count is None or not 0 <= int(np.asarray(count).reshape(-1)[0]) <= SHORT_ROUNDS


@contextmanager
def watched(options: Any, seconds: float, size: int) -> Iterator[None]:
    """Has ``options`` (onnxruntime's RunOptions) end the run when it takes too much."""
    over, ended = threading.Event(), threading.Event()
    until, most = time.process_time() + seconds, _memory() + size

    def watch() -> None:
        while not over.wait(_PERIOD_S):
            if time.process_time() > until or _memory() > most:
                ended.set()
                options.terminate = True
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        if ended.is_set() and seconds == math.inf:
            raise GrowthError(size) from None
        if ended.is_set():
            raise EndlessLoopError from None
        raise
    finally:
        over.set()
        thread.join()


def _memory() -> int:
    """Bytes that the process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
