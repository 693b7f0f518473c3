"""Runs cases one after another in this process, and says of each how it went.

Asked by lines of JSON on stdin (``kind``, ``seed`` or ``kept``, and the ``folder``); answers with
lines of JSON on another descriptor. The process is forked from one that has imported everything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_case import Case
from fuzz_watch import Watch, snapshot

MAX_RSS = 2**30
MAX_CPU_S = 10.0
"""On a machine as fast as one of 2024; slower ones have more (`slowness`)."""
MAX_SAID, MAX_LOGGED = 20_000, 1_000_000
"""Characters on stderr, and with ``-vv``, which asks for a line about every decision."""
OUTPUTS = {"model.onnx", "schedule.json", "trace.json", "report.json"}
"""What ``-o`` of a model writes, together."""
REFERENCE_S = 0.03
"""What `slowness` measures on a machine of 2024."""
EXIT_CODES = (0, 1, 2, 3)

_RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FAKED = re.compile(r"^\s*INJECTED: line", re.MULTILINE)
_BUGS = ("Traceback (most recent call last)", "internal error", "Warning: ", "Exception ignored")


def import_everything() -> None:
    """Imports what commands import when they run, so that no case pays for it."""
    import importlib

    names = ("onnxruntime", "onnx.reference", "rich.console", "gecompiler.driver", "onnx.helper")
    names += ("gecompiler.backends.execution.executor", "gecompiler.passes", "gecompiler.compiled")
    names += ("gecompiler.profiles", "gecompiler.diff", "gecompiler.html_report", "yaml")
    for name in names:
        importlib.import_module(name)
    slowness()


@cache
def slowness() -> float:
    """How many times as long this machine takes as one of 2024; at least 1."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        sum(i * i for i in range(500_000))
        best = min(best, time.process_time() - start)
    return max(1.0, best / REFERENCE_S)


def run_case(case: Case, watch: Watch) -> dict[str, Any]:
    """Runs the command in this process; ``faults`` lists what must not happen."""
    _reset_peak()
    before, children = snapshot(case.folder), _most_of_children()
    out, err = io.StringIO(), io.StringIO()
    os.chdir(case.folder / "cwd")
    tempfile.tempdir = str(case.folder / "tmp")
    started, cpu = time.monotonic(), _cpu()
    watch.start(case.folder, case.arguments)
    crash = ""
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = _main(case.arguments)
        except BaseException:  # what escapes is what is looked for
            crash = traceback.format_exc()
    touched = watch.stop()
    used, wall, peak = _cpu() - cpu, time.monotonic() - started, _peak()
    if _most_of_children() > children:
        peak = max(peak, _most_of_children())
    text = out.getvalue() + "\n" + err.getvalue()
    faults = [f"escaped: {crash}"] if crash else []
    faults += [f"touched: {what}" for what in touched]
    faults += [f"exit code {code!r}"] * (not crash and code not in EXIT_CODES)
    faults += [f"said: {_around(text, bug)}" for bug in _BUGS if bug in text]
    most = MAX_LOGGED if "-vv" in case.argv else MAX_SAID
    faults += [f"long: {len(err.getvalue())} characters on stderr"] * (len(err.getvalue()) > most)
    faults += _terminal_faults(out.getvalue(), err.getvalue())
    faults += _folder_faults(case, before, code)
    faults += [f"memory: {peak >> 20} MiB"] * (peak > MAX_RSS)
    faults += [f"time: {used:.1f} s of CPU"] * (used > MAX_CPU_S * slowness())
    return {
        **{"case": case.name, "argv": list(case.argv), "code": code, "cpu": round(used, 3)},
        **{"wall": round(wall, 3), "peak": peak, "faults": faults, "said": err.getvalue()[:400]},
    }


def _main(arguments: list[str]) -> object:
    from gecompiler.cli import main

    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0


def _around(text: str, mark: str) -> str:
    at = text.index(mark)
    return text[max(0, at - 100) : at + 600]


def _terminal_faults(out: str, err: str) -> list[str]:
    found = []
    for name, text in (("stdout", out), ("stderr", err)):
        raw = _RAW.search(text)
        if raw is not None:
            at = raw.start()
            found.append(f"raw control character on {name}: {text[max(0, at - 60) : at + 20]!r}")
        if _FAKED.search(text):
            at = text.index("INJECTED: line")
            found.append(f"a name begins a line of {name}: {text[max(0, at - 60) : at + 20]!r}")
    return found


def _folder_faults(case: Case, before: dict[str, Any], code: object) -> list[str]:
    after = snapshot(case.folder)
    changed = [p for p in before.keys() | after.keys() if before.get(p) != after.get(p)]
    found = [f"changed: {path}" for path in sorted(changed)]
    written = [p for p in (case.folder / "out").rglob("*") if p.is_file()]
    found += [f"left over: {p.name}" for p in written if p.name.startswith(".")]
    names = {p.name for p in written}
    if names & OUTPUTS and not names >= (OUTPUTS if case.writes_a_model else set()):
        found.append(f"exit code {code} with output {sorted(names)}")
    return found


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most memory that this process has held since `_reset_peak`, and its checker at all."""
    from gecompiler.ir.onnx_io import sandbox

    checker = sandbox._worker._process
    return max(_high_water("self"), 0 if checker is None else _high_water(str(checker.pid)))


def _high_water(process: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _most_of_children() -> int:
    """The most memory of a process that was started here and has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def limit_memory(size: int) -> None:
    """A net below the check: no case may take the machine's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1000)
