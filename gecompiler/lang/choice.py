"""Which language the user is spoken to in: English or Chinese."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gecompiler.ir.errors import UsageError, nearest

LANGUAGES = ("en", "zh")
VARIABLES = ("GEC_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""The first of these that is set decides, unless a language is set."""

_chosen: ContextVar[str | None] = ContextVar("gecompiler_language", default=None)


def language() -> str:
    """The language in use: that of `set_language`, else what the environment says."""
    return _chosen.get() or from_environment(os.environ)


def set_language(name: str | None) -> None:
    """Speaks that language from now on, in this context; None goes by the environment again.

    UsageError for a language there are no texts in.
    """
    _chosen.set(None if name is None else _known(name))


@contextmanager
def use_language(name: str) -> Iterator[None]:
    """Speaks that language for a while."""
    token = _chosen.set(_known(name))
    try:
        yield
    finally:
        _chosen.reset(token)


def from_environment(environ: Mapping[str, str]) -> str:
    """Chinese where the locale is, as ``zh_CN.UTF-8``; English for all others."""
    for variable in VARIABLES:
        if value := environ.get(variable, ""):
            return "zh" if value.lower().startswith(("zh", "chinese")) else "en"
    return "en"


def make_writable(*streams: Any) -> None:
    """Sees to it that Chinese can be written to streams of an encoding that has none."""
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            "中".encode(stream.encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8")


def _known(name: str) -> str:
    if name not in LANGUAGES:
        raise UsageError(
            f"there are no texts in {name!r}", where="lang", hint=nearest(name, LANGUAGES)
        )
    return name
