"""How far long work has come: on stderr, where that is a terminal, and gone when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gecompiler.lang import say, translate
from gecompiler.terminal import printable, raw_stream

PATIENCE = 0.5
"""Seconds of work before anything is shown: what is quick needs no watching."""


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is told how many of how many points are finished."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(file=raw_stream(sys.stderr))
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal and not quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(say("points"), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def activity(quiet: bool) -> Iterator[None]:
    """Shows what the work within is at: the pass, the candidate, the fusion that is checked."""
    if quiet or not raw_stream(sys.stderr).isatty():
        yield
        return
    from gecompiler.ir.activity import listening

    with _Shown() as shown, listening(shown.told):
        yield


class _Shown:
    """A line with a spinner, once the work has taken longer than one cares to wait."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), "{task.description}", BarColumn(20), TimeElapsedColumn())
        console = Console(file=raw_stream(sys.stderr))
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._begun = self._bar.get_time()

    def __enter__(self) -> _Shown:
        return self

    def told(self, what: str, done: int, total: int) -> None:
        """Shows it; the bar moves where there are parts."""
        text = printable(translate(what)).replace("[", r"\[")
        self._bar.update(self._task, description=text, completed=done, total=total or None)
        if not self._bar.live.is_started and self._bar.get_time() - self._begun > PATIENCE:
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
