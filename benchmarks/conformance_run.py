"""Runs onnx.backend.test with one backend, in a process that is replaced when it dies."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "benchmarks.conformance_worker")
DEADLINE = 300.0
"""Seconds that one test may take."""


@dataclass(frozen=True)
class Outcome:
    """How a test went: ``passed``, ``failed``, ``skipped``, ``crashed`` or ``hung``, and why."""

    test: str
    category: str
    how: str
    why: str = ""


class Worker:
    """A process of `conformance_worker`; ``tests`` is category by name."""

    def __init__(self, backend: str, models: str) -> None:
        settings = {"ONNX_MODELS": models, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, **settings},
        )
        found = self._read(DEADLINE)
        if not isinstance(found, dict):
            self.close()
            raise RuntimeError(f"the worker of {backend} does not start: {found}")
        self.tests = {test: str(category) for test, category in found.items()}

    def run(self, test: str) -> Outcome:
        """The outcome; afterwards the worker may be dead."""
        stdin = self.process.stdin
        assert stdin is not None
        category = self.tests[test]
        stdin.write(f"{test}\n".encode())
        stdin.flush()
        found = self._read(DEADLINE)
        if isinstance(found, dict):
            return Outcome(test, category, str(found["how"]), str(found["why"]))
        if found == "hung":
            return Outcome(test, category, "hung", f"no result within {DEADLINE:.0f} s")
        return Outcome(test, category, "crashed", found)

    def _read(self, seconds: float) -> dict[str, object] | str:
        """The next message; else what became of the process."""
        out = self.process.stdout
        assert out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            if not selector.select(seconds):
                self.close()
                return "hung"
        line = out.readline()
        if line:
            found: dict[str, object] = json.loads(line)
            return found
        code = self.process.wait()
        return f"the process ended with {'signal' if code < 0 else 'code'} {abs(code)}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """Ends the process."""
        with self.process:  # closes the pipes too
            self.process.kill()


def run_suite(backend: str, pattern: str = "") -> list[Outcome]:
    """Every test whose name matches, in the order of their names."""
    chosen = re.compile(pattern)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as models:
        worker = Worker(backend, models)
        try:
            for test in sorted(t for t in worker.tests if chosen.search(t)):
                if not worker.alive:
                    worker.close()
                    worker = Worker(backend, models)
                outcomes.append(worker.run(test))
        finally:
            worker.close()
    return outcomes
