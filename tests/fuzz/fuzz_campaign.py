"""Runs many cases: in processes that live for some cases each, timed and restarted."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzz_case import Case, keep
from fuzz_watch import Watch
from fuzz_worker import import_everything, limit_memory, run_case, slowness

CASES_A_PROCESS = 200
WALL_LIMIT_S = 1200.0
"""Generous, since the machine may be busy: hangs are told by the CPU time."""
CPU_LIMIT_S = 25.0
ADDRESS_SPACE = 6 * 2**30

Make = Callable[[Path], Case]


@dataclass
class Tally:
    """What came out of a campaign."""

    count: int = 0
    codes: Counter[object] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    peak: int = 0
    peak_case: str = ""
    slowest: float = 0.0
    slowest_case: str = ""

    def add(self, found: dict[str, Any]) -> None:
        """Counts one case."""
        self.count += 1
        self.codes[found["code"]] += 1
        if found["peak"] > self.peak:
            self.peak, self.peak_case = found["peak"], found["case"]
        if found["cpu"] > self.slowest:
            self.slowest, self.slowest_case = found["cpu"], found["case"]
        if found["faults"]:
            self.failures.append(found)

    def summary(self) -> str:
        """The figures in words."""
        codes = ", ".join(f"{n} x {code}" for code, n in sorted(self.codes.items(), key=str))
        return (
            f"{self.count} cases (exit codes {codes}), {len(self.failures)} failures, "
            f"peak {self.peak / 2**20:.0f} MiB ({self.peak_case}), "
            f"slowest {self.slowest:.1f} s of CPU ({self.slowest_case})"
        )


def run_cases(makers: Iterable[Make], base: Path, failures: Path | None = None) -> Tally:
    """Runs every case, in a folder below ``base``; copies those that fail to ``failures``."""
    import_everything()
    base.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    with _Processes() as processes:
        for index, make in enumerate(makers):
            case = make(base / "case")
            found = processes.run(case)
            tally.add(found)
            if found["faults"] and failures is not None:
                name = case.name.replace(":", "-")
                keep(case, failures / name)
                (failures / name / "found.json").write_text(json.dumps(found, indent=1))
            if index % 500 == 499:
                print(f"{index + 1}: {tally.summary()}", flush=True)  # noqa: T201
    return tally


class _Processes:
    """One process at a time, replaced now and then and when it fails."""

    def __init__(self) -> None:
        self._now: _Process | None = None

    def run(self, case: Case) -> dict[str, Any]:
        """What came of the case."""
        if self._now is None or self._now.done >= CASES_A_PROCESS:
            self.close()
            self._now = _Process()
        found = self._now.run(case)
        if found is None:
            found = self._now.post_mortem(case)
            self._now = None
        return found

    def close(self) -> None:
        """Lets the process end."""
        if self._now is not None:
            self._now.stop()
            self._now = None

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Process:
    """A forked process that runs cases."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._pipe), daemon=False)
        self._process.start()
        theirs.close()
        self.done = 0
        self._why = ""

    def run(self, case: Case) -> dict[str, Any] | None:
        """What came of the case; None when the process died over it or had to be ended."""
        self.done += 1
        started, cpu = time.monotonic(), self._cpu()
        self._pipe.send(case)
        while not self._pipe.poll(0.25):
            if not self._process.is_alive():
                self._why = f"died: {self._process.exitcode}"
                return None
            used, wall = self._cpu() - cpu, time.monotonic() - started
            if used > CPU_LIMIT_S * slowness() or wall > WALL_LIMIT_S:
                self._why = f"hangs: {used:.0f} s of CPU, {wall:.0f} s in all"
                return None
        try:
            found: dict[str, Any] = self._pipe.recv()
        except EOFError:
            self._process.join()
            self._why = f"died: {self._process.exitcode}"
            return None
        return found

    def _cpu(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def post_mortem(self, case: Case) -> dict[str, Any]:
        """Ends the process, and says what is known of the case."""
        if self._process.is_alive():
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._pipe.close()
        return {
            **{"case": case.name, "argv": list(case.argv), "code": None, "cpu": 0.0, "wall": 0.0},
            **{"peak": 0, "faults": [self._why], "said": ""},
        }

    def stop(self) -> None:
        """Lets the process end."""
        self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
        self._pipe.close()


def _serve(pipe: Connection, other_end: Connection) -> None:
    other_end.close()
    limit_memory(ADDRESS_SPACE)
    watch = Watch()
    with contextlib.suppress(EOFError):
        while (case := pipe.recv()) is not None:
            pipe.send(run_case(case, watch))
    _stop_checks()


def _stop_checks() -> None:
    """multiprocessing ends a process without atexit: the checker's process is ended here."""
    from gecompiler.ir.onnx_io import sandbox

    sandbox._worker.stop()
