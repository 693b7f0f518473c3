"""A limit on the time that code which is not ours may take.

It runs in a thread of its own, which Python has no way to stop, but one to raise an exception in
(``PyThreadState_SetAsyncExc``): that ends every loop written in Python, and code that catches it
is sent another. A thread that stays, within C code, is left behind; it keeps no process alive.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
AGAIN_SECONDS = 0.05
TIMES = 20


class TimeUpError(BaseException):
    """The time is up; not an Exception, which careless code catches."""


def run_limited(call: Callable[[], T], seconds: float) -> T:
    """What ``call()`` returns or raises, in the caller's context variables.

    TimeUpError when it takes longer than ``seconds``.
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
    thread.start()
    try:
        thread.join(seconds)
        late = thread.is_alive()
    finally:
        _end(thread)
    if late:
        raise TimeUpError
    if raised:
        raise raised[0]
    return returned[0]


def _end(thread: threading.Thread) -> None:
    for _ in range(TIMES):
        if not thread.is_alive() or thread.ident is None:
            return
        ident, error = ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUpError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)
        thread.join(AGAIN_SECONDS)
