"""Full disks, read-only folders, interrupts: one clear error, and nothing half-written."""

from __future__ import annotations

import ctypes
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.models import build_spec

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {
    "PATH": "",
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",  # a full disk would cut it short
    "LANG": "C",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small LLaMA in a folder that everybody may read."""
    folder = tmp_path_factory.mktemp("model")
    save_onnx(build_spec(ROOT / "examples/tiny-llama.yaml", weights="random"), folder / "m.onnx")
    return folder / "m.onnx"


def _gec(
    folder: Path, *arguments: object, limit: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gecompiler", *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
        preexec_fn=limit,
    )


def _small_files() -> None:
    """Files end after 20 kB, as on a disk that is full by then."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize(
    "command",
    [
        ("compile", "-o", "out"),
        ("compile", "--html", "out/page.html"),
        ("profile", "-o", "out", "--format", "all"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_full_disk(command: tuple[str, ...], model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text("old")
    sizes = ("--batch", 2, "--seq", 16)
    done = _gec(tmp_path, command[0], model, *sizes, *command[1:], limit=_small_files)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "report.json"]
    assert (tmp_path / "out" / "report.json").read_text() == "old"


def test_a_full_disk_ends_a_sweep_and_keeps_its_points(model: Path, tmp_path: Path) -> None:
    table = ("sweep", model, "--batch", "1,2,3,4", "--seq", 8, "--workers", 1, "--journal", "j")

    def few_bytes() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (800, 800))

    done = _gec(tmp_path, *table, limit=few_bytes)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    kept = _rows(tmp_path / "j")
    assert 1 <= len(kept) < 4
    done = _gec(tmp_path, *table, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 4


def _rows(journal: Path) -> list[bytes]:
    """The finished points of a journal: all whole lines but the head."""
    return [line for line in journal.read_bytes().split(b"\n")[1:-1] if line]


def test_a_read_only_folder(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o555)
    done = _gec(tmp_path, "compile", model, "-q", "-o", "out", limit=_as_anybody)
    if done.returncode == 0:
        pytest.skip("this user may write everywhere")
    assert done.returncode == 2, done.stderr
    assert "cannot be written: Permission denied" in done.stderr
    assert list(out.iterdir()) == []


def _as_anybody() -> None:
    """Without root's right to write where permissions say no."""
    bounding_set_drop, dac_override = 24, 1
    ctypes.CDLL(None).prctl(bounding_set_drop, dac_override, 0, 0, 0)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_sweep_loses_no_point(
    sign: signal.Signals, workers: int, model: Path, tmp_path: Path
) -> None:
    batches = ",".join(map(str, range(1, 61)))
    table = ["sweep", str(model), "--batch", batches, "--seq", "8", "--journal", "j"]
    table += ["--workers", str(workers), "-o", "table.csv"]
    code, said = _interrupted(sign, 2, table, tmp_path)
    assert code == 128 + sign, said
    assert "Traceback" not in said
    kept = _rows(tmp_path / "j")
    assert 2 <= len(kept) < 60
    assert not (tmp_path / "table.csv").exists()
    few = ["sweep", str(model), "--batch", "1", "--seq", "8", "--journal", "j"]
    done = _gec(tmp_path, *few)
    assert done.returncode == 0, done.stderr
    assert _rows(tmp_path / "j")[: len(kept)] == kept


def test_an_interrupted_search_writes_nothing(model: Path, tmp_path: Path) -> None:
    command = ["tune", str(model), "--batch", "8", "--seq", "64", "-o", "options.yaml"]
    code, said = _interrupted(signal.SIGINT, 3, command, tmp_path)
    assert code == 130, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, signal, sys
from gecompiler.cli import main
from gecompiler.sweep.journal import Journal
sign, left = int(sys.argv[1]), [int(sys.argv[2])]
def add(self, row, add=Journal.add):
    add(self, row)
    left[0] -= 1
    if left[0] == 0:
        os.killpg(os.getpid(), sign)
Journal.add = add
main(sys.argv[3:])
"""


def _interrupted(
    sign: signal.Signals, points: int, command: list[str], folder: Path
) -> tuple[int, str]:
    """``gec``, interrupted as from a terminal after so many points: its exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(int(sign)), str(points), *command],
        cwd=folder,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        check=False,
    )
    return done.returncode, done.stderr
