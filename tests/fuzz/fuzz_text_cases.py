"""Cases of YAML, JSON and CSV: profiles of devices, assignments, schedules, captures."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

from fuzz_case import Builder
from fuzz_data import changed_csv, changed_json, changed_yaml
from fuzz_seeds import seed_model

ASSIGNMENT = b"""\
assignment: {MatMul: 0, Softmax: 1, "*": 0}
sync_points:
  - {producer: MatMul, consumer: Softmax, sync_type: data_ready}
labels: {MatMul: attention}
priorities: {MatMul: 1}
core_limits: {MatMul: {cube: 4, vector: 8}}
options:
  num_streams: 2
  stream_strategy: auto
  overlap_ratio: 0.5
  pipeline_depth: 2
  merge_waits: true
  seed: 1
"""
DEVICE = b"""\
version: 1
name: mycard
description: made up
aliases: [other]
extends: ascend910b
figures:
  hbm_bandwidth_gb_per_s: {value: 1600, source: a test, kind: vendor}
  hbm_bytes: {value: 34359738368, source: a test, kind: vendor}
"""
EVIL = "from pathlib import Path\nPath('INJECTED').write_text('run')\n"

Change = Callable[[bytes, random.Random], bytes]
_CHANGE: dict[str, Change] = {".yaml": changed_yaml, ".json": changed_json, ".csv": changed_csv}


@cache
def samples() -> Path:
    """A folder of valid files: all that `gec profile` writes of a small model."""
    from gecompiler.cli import main

    folder = Path(tempfile.mkdtemp(prefix="fuzz-samples-"))
    (folder / "attention.onnx").write_bytes(seed_model("attention").SerializeToString())
    options = ["--batch", "2", "--seq", "16", "--streams", "2", "--format", "all", "-q"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["profile", str(folder / "attention.onnx"), "-o", str(folder / "run"), *options])
    return folder


def _surroundings(folder: Path) -> None:
    (folder / "evil.py").write_text(EVIL)
    shutil.copy(samples() / "attention.onnx", folder / "m.onnx")


def _one(seed: Callable[[], bytes], name: str, *commands: list[str]) -> Builder:
    """Cases of one changed file, given to one of the commands."""
    change = _CHANGE[Path(name).suffix]

    def build(folder: Path, rng: random.Random) -> list[str]:
        _surroundings(folder)
        (folder / name).write_bytes(change(seed(), rng))
        return list(rng.choice(commands))

    return build


def _sample(pattern: str) -> Callable[[], bytes]:
    return lambda: next(samples().glob(f"run/{pattern}")).read_bytes()


def _folder(pattern: str, *commands: list[str]) -> Builder:
    """Cases of a folder of captures with one or two files changed."""

    def build(folder: Path, rng: random.Random) -> list[str]:
        _surroundings(folder)
        source = next(samples().glob(f"run/{pattern}"))
        shutil.copytree(source, folder / "run")
        files = sorted(p for p in (folder / "run").rglob("*") if p.suffix in _CHANGE)
        for path in rng.sample(files, min(len(files), rng.choice((1, 2)))):
            path.write_bytes(_CHANGE[path.suffix](path.read_bytes(), rng))
        return list(rng.choice(commands))

    return build


def _built_in_device() -> bytes:
    return _shipped("gecompiler.backends.devices", "ascend910b.yaml")


def _built_in_topology() -> bytes:
    return _shipped("gecompiler.backends.topologies", "a100-servers.yaml")


def _shipped(package: str, name: str) -> bytes:
    return resources.files(package).joinpath(name).read_bytes()


_COMPILE = ["compile", "{in}/m.onnx", "--batch", "2", "--seq", "4"]
KERNELS = "PROF_*/mindstudio_profiler_output/op_summary*.csv"

BUILDERS: tuple[tuple[str, Builder], ...] = (
    ("device", _one(lambda: DEVICE, "d.yaml",
        ["devices", "{in}/d.yaml"], [*_COMPILE, "--device", "{in}/d.yaml", "-o", "{out}"],
        ["devices", "{in}/d.yaml", "ascend910"], ["devices", "{in}/d.yaml", "--json"],
        ["tune", "{in}/m.onnx", "--device", "{in}/d.yaml", "--batch", "1", "--seq", "4",
         "--workers", "1", "-o", "{out}/o.yaml"])),
    ("whole-device", _one(_built_in_device, "d.yaml",
        ["devices", "{in}/d.yaml"], [*_COMPILE, "--device", "{in}/d.yaml"])),
    ("topology", _one(_built_in_topology, "t.yaml",
        ["topologies", "{in}/t.yaml"], ["topologies", "{in}/t.yaml", "--json", "--cards", "8"],
        [*_COMPILE, "--topology", "{in}/t.yaml", "-o", "{out}"])),
    ("assign", _one(lambda: ASSIGNMENT, "a.yaml",
        [*_COMPILE, "--assign", "{in}/a.yaml", "-o", "{out}"],
        [*_COMPILE, "--assign", "{in}/a.yaml"],
        ["sweep", "{in}/m.onnx", "--assign", "{in}/a.yaml", "--batch", "1", "--seq", "4",
         "--workers", "1", "--journal", "{out}/journal"])),
    ("schedule", _one(_sample("schedule.json"), "schedule.json",
        ["check", "{in}/schedule.json"], ["check", "--json", "{in}/schedule.json"],
        ["diff", "{in}/schedule.json", "{in}/schedule.json"])),
    ("durations", _one(_sample(KERNELS), "k.csv",
        [*_COMPILE, "--durations", "{in}/k.csv", "-o", "{out}"],
        ["calibrate", "{in}/k.csv", "--device", "ascend910b", "-o", "{out}/c.yaml"])),
    ("capture", _folder("PROF_*",
        ["profile", "--from", "{in}/run"], ["profile", "--from", "{in}/run", "--json"],
        ["profile", "--from", "{in}/run", "-o", "{out}", "--format", "all"],
        ["profile", "--from", "{in}/run", "--html", "{out}/p.html"],
        ["diff", "{in}/run", "{in}/run"])),
    ("trace", _one(_sample("trace.json"), "trace.json",
        ["diff", "{in}/trace.json", "{in}/trace.json", "--json"],
        ["diff", "{in}/trace.json", "{in}/trace.json"],
        ["profile", "--from", "{in}/trace.json"])),
    ("kineto", _one(_sample("kineto/*.json"), "trace_view.json",
        ["profile", "--from", "{in}/trace_view.json"],
        ["profile", "--from", "{in}/trace_view.json", "-o", "{out}"])),
    ("timeline", _one(_sample("PROF_*/*/msprof_*.json"), "msprof_1.json",
        ["profile", "--from", "{in}/msprof_1.json"],
        ["profile", "--from", "{in}/msprof_1.json", "-o", "{out}", "--format", "all"])),
)  # fmt: skip
"""What is fuzzed, by kind."""
