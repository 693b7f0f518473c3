"""Runs of ``gec`` that are killed at random moments, and what they leave.

python tests/faults/killing.py 200      kills compile, sweep and tune in turn; prints the counts
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
State = Mapping[str, bytes]


def gec(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """``gec`` started in a folder, as the leader of a process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "gecompiler", *arguments],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def state(folder: Path) -> dict[str, bytes]:
    """Every file that a user sees: those whose names do not begin with a dot."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    shown = {str(p.relative_to(folder)): p for p in files}
    visible = {n: p for n, p in shown.items() if not any(x[0] == "." for x in Path(n).parts)}
    return {name: path.read_bytes() for name, path in visible.items()}


@dataclass
class Scenario:
    """A command that writes ``out``, and the two states in which it may be found."""

    name: str
    before: Sequence[str] | None
    """What made the old state; None: there is none."""
    command: Sequence[str]
    folder: Path
    old: State = field(default_factory=dict)
    new: State = field(default_factory=dict)
    seconds: float = 0.0

    def prepare(self) -> None:
        """Runs old and new to their ends, and notes what they leave and how long it takes."""
        self._reset()
        self.old = state(self.folder / "out")
        started = time.monotonic()
        assert gec(self.command, self.folder).wait() == 0, self.command
        self.seconds = time.monotonic() - started
        self.new = state(self.folder / "out")
        assert self.old != self.new

    def _reset(self) -> None:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        for left in self.folder.glob(".gec-*"):
            shutil.rmtree(left)
        if self.before is not None and not self.old:
            assert gec(self.before, self.folder).wait() == 0, self.before
        elif self.before is not None:
            for name, data in self.old.items():
                (self.folder / "out" / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / "out" / name).write_bytes(data)

    def kill_after(self, seconds: float) -> str:
        """``old``, ``new``, or what is wrong, of a run killed after so long."""
        self._reset()
        process = gec(self.command, self.folder)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found = state(self.folder / "out")
        if found == self.new:
            return "new"
        if found == self.old:
            return self._goes_on()
        return f"mixed: {sorted(found)}"

    def _goes_on(self) -> str:
        """The next run is not hindered, gives the same, and clears away what was left."""
        if gec(self.command, self.folder).wait() != 0:
            return "the next run failed"
        if state(self.folder / "out") != self.new:
            return "the next run gave something else"
        left = [p.name for p in self.folder.rglob(".*") if p.name.endswith((".part", ".new"))]
        return f"left behind: {left}" if left else "old"


def scenarios(model: Path, folder: Path) -> list[Scenario]:
    """Compile anew and over an older result, sweep, and a search."""
    name = str(model)
    sizes = ["--batch", "2", "--seq", "16"]
    other = ["--batch", "1", "--seq", "8"]
    table = ["sweep", name, "--batch", "1,2", "--seq", "8", "--streams", "1,2", "--workers", "1"]
    one = ["compile", name, "-o", "out"]
    found = [
        ("compile", None, [*one, *sizes, "--html", "out.html"]),
        ("compile again", [*one, *other], [*one, *sizes]),
        ("profile", None, ["profile", name, *sizes, "-o", "out", "--format", "all"]),
        ("sweep", None, [*table, "-o", "out/table.csv", "--journal", "journal"]),
        ("search", None, ["tune", name, *sizes, "-o", "out/options.yaml"]),
    ]
    made = []
    for title, before, command in found:
        own = folder / title.replace(" ", "-")
        own.mkdir()
        made.append(Scenario(title, before, command, own))
    return made


def campaign(model: Path, folder: Path, kills: int, seed: int = 0) -> dict[str, Counter[str]]:
    """So many kills spread over the scenarios; what was found after each, counted."""
    draw = random.Random(seed)
    found = scenarios(model, folder)
    for scenario in found:
        scenario.prepare()
    counts: dict[str, Counter[str]] = {s.name: Counter() for s in found}
    for kill in range(kills):
        scenario = found[kill % len(found)]
        moment = draw.uniform(0.0, 1.1 * scenario.seconds)
        counts[scenario.name][scenario.kill_after(moment)] += 1
    return counts


def main() -> int:
    """The command; exit 1 when a folder was found in neither state."""
    from gecompiler.ir.onnx_io.exporter import save_onnx
    from gecompiler.models.registry import build_spec

    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "tiny.onnx"
        save_onnx(build_spec(ROOT / "examples/tiny-llama.yaml", weights="random"), model)
        counts = campaign(model, folder, kills)
    for scenario, found in counts.items():
        sys.stdout.write(f"{scenario}: {dict(sorted(found.items()))}\n")
    good = sum(found["old"] + found["new"] for found in counts.values())
    sys.stdout.write(f"{good} of {kills} kills left the old state or the new\n")
    return int(good != kills)


if __name__ == "__main__":
    sys.exit(main())
