"""The two kinds of failure: a user's mistake, and ours.

Every `GecError` is one message that names where it happened, says what was expected and
found, and what to try next; the command line prints it without a traceback. Anything else
that escapes is a bug of ours and keeps its traceback under ``--debug``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GecError(Exception):
    """A mistake of the user's, told in one message.

    ``where`` is the file, node or option at fault; ``hint`` is what to try next.
    ``exit_code`` is what ``gec`` exits with (interfaces.md: 1 model or schedule, 2 usage,
    3 numbers differ).
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class ModelError(GecError):
    """The model file or graph is at fault."""


class UnknownSizeError(ModelError):
    """A size is needed that only a run of the model can tell."""


class MissingDataError(ModelError):
    """Numbers are needed of a constant whose data is not there."""


class GraphError(ModelError):
    """An edit or a graph that breaks an invariant of the IR."""


class ScheduleError(GecError):
    """A schedule that is wrong or that the device cannot hold."""


class LargerThanPlannedError(ScheduleError):
    """A tensor came out larger than the memory that is planned for it."""


class UsageError(GecError):
    """A wrong option, name or value."""

    exit_code = 2


class MismatchError(GecError):
    """Numbers differ from what was expected."""

    exit_code = 3


_LONGEST_NAME = 200


def shown_name(name: str) -> str:
    """A name of a stranger's as a message shows it: quoted where it would break the line, cut."""
    if name.isprintable() and len(name) <= _LONGEST_NAME:
        return name
    return repr(name[:_LONGEST_NAME]) + ("..." if len(name) > _LONGEST_NAME else "")


def nearest(name: object, known: Iterable[str], count: int = 3) -> str:
    """A hint naming the known names closest to ``name``, or listing a few of them.

    What a file has in a name's place may be anything.
    """
    names = sorted(set(known))
    short = [n for n in names if len(n) <= _LONGEST_NAME]
    close = difflib.get_close_matches(str(name)[:_LONGEST_NAME], short, n=count, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    shown = ", ".join(shown_name(n) for n in names[:8]) + (", ..." if len(names) > 8 else "")
    return f"known: {shown}" if names else "nothing is known under any name here"
