"""A limit on the time that code which is not ours may take.

Python has no way to stop a thread; it has one to raise an exception in it
(``PyThreadState_SetAsyncExc``), which ends every loop written in Python. Code that catches it is
sent another one, until it leaves. What waits within C code is ended when it comes back from there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_SECONDS = 0.05


class TimeUpError(BaseException):
    """The time is up; not an Exception, which careless code catches."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeUpError` within the block once it has taken longer."""
    thread = threading.get_ident()
    over, guard = threading.Event(), threading.Lock()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            with guard:
                if not over.is_set():
                    _raise_in(thread, TimeUpError)
            wait = AGAIN_SECONDS

    watcher = threading.Thread(target=watch, name="time limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        _stop(thread, over, guard)
        watcher.join()


def _stop(thread: int, over: threading.Event, guard: threading.Lock) -> None:
    """Ends the watch, and takes back an exception that has not come yet."""
    while not over.is_set():
        try:
            with guard:
                over.set()
                _raise_in(thread, None)
        except TimeUpError:  # it came just here
            continue


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
