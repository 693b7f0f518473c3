"""A limit on the time that code which is not ours may take.

It runs in a thread of its own, which Python has no way to stop, but one to raise an exception in
(``PyThreadState_SetAsyncExc``): that ends every loop written in Python, and code that catches it
is sent another. A thread that stays, within C code, is left behind; it keeps no process alive.
Whatever such code raises comes back as `StrangersError`, also what would end the process.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from gecompiler.ir.errors import GecError

T = TypeVar("T")
AGAIN_SECONDS = 0.05
TIMES = 20
SECONDS = 60.0
"""The limit where the user sets none."""


class TimeUpError(BaseException):
    """The time is up; not an Exception, which careless code catches."""


class StrangersError(Exception):
    """What code that is not ours raised (``__cause__``); told as ``KeyError: 'x'``."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(told(raised))
        self.__cause__ = raised


def told(error: BaseException) -> str:
    """An exception's type and text, also of one that cannot tell its text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return f"{name} (without a text)"


def run_limited(call: Callable[[], T], seconds: float | None = None) -> T:
    """What ``call()`` returns, in the caller's context variables; the folder worked in stays.

    TimeUpError when it takes longer than ``seconds`` (default: `SECONDS`), the GecError that it
    raises, StrangersError for all else that it raises.
    """
    returned: list[T] = []
    raised: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            returned.append(context.run(call))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="time limit", daemon=True)
    folder = _folder()
    try:
        thread.start()
        thread.join(SECONDS if seconds is None else seconds)
        late = thread.is_alive()
    finally:
        _end(thread)
        if folder and _folder() != folder:
            os.chdir(folder)
    if late:
        raise TimeUpError("this does not end")
    if raised:
        raise _told(raised[0])
    return returned[0]


def _folder() -> str:
    """The folder worked in; "" when it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _told(raised: BaseException) -> Exception:
    """The error to raise: that of the product where it is whole, or one that tells it."""
    strange = StrangersError(raised)
    if isinstance(raised, GecError) and all(
        isinstance(getattr(raised, part, None), str) for part in ("message", "where", "hint")
    ):
        return raised
    return strange


def _end(thread: threading.Thread) -> None:
    for _ in range(TIMES):
        if not thread.is_alive() or thread.ident is None:
            return
        ident, error = ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUpError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)
        thread.join(AGAIN_SECONDS)
