"""Traces for the tools that people have, written by one writer in several dialects.

`Recording` is the one model of what happened; a dialect spells it. ``chrome`` is the JSON of
Perfetto and chrome://tracing, ``msprof`` the folder of Ascend's profiler that MindStudio Insight
opens, ``kineto`` the JSON of PyTorch's profiler that HolisticTraceAnalysis reads.
"""

from __future__ import annotations

from gecompiler.backends.trace.chrome import chrome_text, write_trace
from gecompiler.backends.trace.kineto import kineto_files
from gecompiler.backends.trace.msprof import msprof_files
from gecompiler.backends.trace.recording import Recording, TaskFacts, Tensors

__all__ = [
    "DIALECTS",
    "Recording",
    "TaskFacts",
    "Tensors",
    "chrome_text",
    "kineto_files",
    "msprof_files",
    "trace_files",
    "write_trace",
]

DIALECTS = ("chrome", "msprof", "kineto")
"""The names of the dialects."""


def trace_files(recording: Recording, dialect: str) -> dict[str, str]:
    """A dialect's files, by path under the folder that they are written to."""
    if dialect == "msprof":
        return msprof_files(recording)
    if dialect == "kineto":
        return kineto_files(recording)
    return {"trace.json": chrome_text(recording)}
