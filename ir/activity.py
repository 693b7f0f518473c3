"""What a long computation is at, for whoever watches: the command line shows it.

`tell` costs next to nothing where nobody listens; listeners are per context (thread or task).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""Is told what is done now, and how many of how many parts are finished (0, 0: not known)."""

_listener: ContextVar[Listener | None] = ContextVar("gecompiler_activity", default=None)


def tell(what: str, done: int = 0, total: int = 0) -> None:
    """Tells whoever listens what is done now."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Has the listener told of what is done within."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
