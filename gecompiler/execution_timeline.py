"""A timeline as users hold it: it prints itself, saves itself, and answers as a Timeline."""

from __future__ import annotations

import os
from typing import Any

from gecompiler.files import write_text
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Timeline


class ExecutionTimeline:
    """What happened when on the simulated device; everything of `Timeline`, and two more."""

    def __init__(self, timeline: Timeline, schedule: Schedule, max_streams: int) -> None:
        self.timeline = timeline
        self.schedule = schedule
        self.max_streams = max_streams

    def __getattr__(self, name: str) -> Any:
        return getattr(self.timeline, name)

    def _repr_html_(self) -> str:
        return self.timeline._repr_html_()

    def text(self, width: int = 40) -> str:
        """A bar per stream of the device, and its busy time."""
        from gecompiler.report_timeline import stream_bars

        return stream_bars(self.timeline, self.max_streams, width)

    def print(self) -> None:
        """Prints a bar per stream, as long as the stream is busy."""
        print(self.text())  # noqa: T201  (printing is what it is for)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace that Perfetto and chrome://tracing open; OutputError if it cannot."""
        from gecompiler.backends.trace import write_trace

        write_text(path, write_trace(self.timeline, self.schedule))
