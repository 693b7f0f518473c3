"""Finding a profile's files: by their names, as the vendor's own viewer does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gecompiler.ir.errors import UsageError

MAX_DEPTH = 8
MAX_ENTRIES = 200_000

KINDS: dict[str, re.Pattern[str]] = {
    "kernel_details": re.compile(r"kernel_details[^/]*\.csv"),
    "op_summary": re.compile(r"op_summary[^/]*\.csv"),
    "task_time": re.compile(r"task_time[^/]*\.csv"),
    "trace": re.compile(r"(trace_view[^/]*|msprof_(slice_)?\d[^/]*)\.json"),
    "steps": re.compile(r"step_trace_time[^/]*\.csv"),
    "communication": re.compile(r"communication\.json"),
    "info": re.compile(r"profiler_info(_\d+)?\.json"),
}
"""Names of files, by what they hold."""

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_PARTS = ("summary", "timeline", _OUTPUT, "mindstudio_profiler_output")
_RAW = ("FRAMEWORK", "logs", "data", "sqlite", "host")
"""Folders of raw data within a profile's own."""


@dataclass
class Source:
    """The files of one process, by kind, each in the order of their names."""

    folder: Path
    files: dict[str, list[Path]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Path]:
        """The files of a kind."""
        return self.files.get(kind, [])


def find_sources(path: Path) -> list[Source]:
    """The profiles at a path: a file, a folder of one card, or a folder of such folders.

    UsageError where there is none, saying what was looked for.
    """
    try:
        if path.is_file():
            return [_single(path)]
        if not path.is_dir():
            raise UsageError(
                "is neither a file nor a folder", where=str(path), hint="check the path"
            )
        found = _grouped(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot be read: {reason}", where=str(path)) from None
    usable = [s for s in found if any(s.of(k) for k in KINDS if k not in ("info", "steps"))]
    if not usable:
        raise UsageError(
            "holds no profile",
            where=str(path),
            hint="expected msprof's or torch_npu's output: op_summary_*.csv, msprof_*.json, "
            "kernel_details.csv or trace_view.json, in it or in folders below it"
            + (" (unpack archives first)" if any(path.glob("*.zip")) else "")
            + (
                "; databases are not read: export as text"
                if any(g for d in ("*.db", "*/*.db") for g in path.glob(d))
                else ""
            ),
        )
    return usable


def kind_of(path: Path) -> str:
    """What a file's name says it holds, '' for none of ours."""
    return next((k for k, pattern in KINDS.items() if pattern.fullmatch(path.name)), "")


def _single(path: Path) -> Source:
    kind = kind_of(path)
    if not kind:
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".json"):
            raise UsageError(
                f"is a {suffix or 'file without an ending'}, no profile",
                where=str(path),
                hint="expected a folder, a .csv of operators or a .json timeline",
            )
        kind = "op_summary" if suffix == ".csv" else "trace"
    return Source(path.parent, {kind: [path]})


def _grouped(root: Path) -> list[Source]:
    groups: dict[Path, Source] = {}
    for path in _walk(root):
        kind = kind_of(path)
        if not kind:
            continue
        folder = path.parent
        while folder != root and folder.name in _PARTS:
            folder = folder.parent
        source = groups.setdefault(folder, Source(folder))
        source.files.setdefault(kind, []).append(path)
    return [groups[folder] for folder in sorted(groups)]


def _walk(root: Path) -> Iterator[Path]:
    """Files below a folder in the order of their names; links are not followed."""
    seen, stack = 0, [(root, 0)]
    while stack:
        folder, depth = stack.pop()
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda e: e.name)
        seen += len(found)
        if seen > MAX_ENTRIES:
            raise UsageError(
                f"has more than {MAX_ENTRIES} files", where=str(root), hint="name a folder in it"
            )
        folders = [e for e in found if e.is_dir(follow_symlinks=False)]
        own = folder.name.startswith(("PROF_", "device_"))
        if any(e.name == _OUTPUT for e in folders):
            # The raw data of the same run lies beside it.
            folders = [e for e in folders if e.name == _OUTPUT]
        yield from (Path(e.path) for e in found if e.is_file(follow_symlinks=False))
        if depth < MAX_DEPTH:
            stack += [
                (Path(e.path), depth + 1)
                for e in reversed(folders)
                if not (e.name.startswith(".") or (own and e.name in _RAW))
            ]
