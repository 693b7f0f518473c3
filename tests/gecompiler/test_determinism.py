"""The same input gives the same bytes, in every process, on any threads, by any Python."""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gecompiler.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ["model.onnx", "report.json", "schedule.json", "trace.json"]
VERSIONS = ("3.11", "3.12", "3.13")


def _written(python: str, folder: Path, arguments: list[str], **environment: str) -> list[bytes]:
    """The bytes of all that is written, by that interpreter."""
    subprocess.run(
        [python, "-m", "gecompiler", "compile", *arguments, "-q", "-o", str(folder)],
        env={"PATH": "", "PYTHONPATH": str(ROOT), **environment},
        cwd=folder.parent,
        check=True,
    )
    assert sorted(p.name for p in folder.iterdir()) == FILES
    return [(folder / name).read_bytes() for name in FILES]


@pytest.fixture
def arguments(tiny_path: Path) -> list[str]:
    return [str(tiny_path), "--batch", "4", "--seq", "16"]


@pytest.mark.parametrize("strategy", ["auto", "pipeline", "heft"])
def test_hash_seeds_and_threads(strategy: str, arguments: list[str], tmp_path: Path) -> None:
    command = [*arguments, "--strategy", strategy]
    one = _written(sys.executable, tmp_path / "a", command, PYTHONHASHSEED="1", OMP_NUM_THREADS="1")
    two = _written(sys.executable, tmp_path / "b", command, PYTHONHASHSEED="2", OMP_NUM_THREADS="2")
    assert one == two


def _interpreter(version: str) -> str | None:
    """An interpreter of that version that has what the package needs."""
    named = os.environ.get(f"GEC_PYTHON_{version.replace('.', '_')}")
    found = named or shutil.which(f"python{version}")
    if found is None:
        return None
    needs = "import sys, onnx, onnxruntime, networkx, click, rich, yaml, ml_dtypes"
    check = f"{needs}; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}"
    done = subprocess.run([found, "-c", check], capture_output=True, check=False)
    return found if done.returncode == 0 else None


@pytest.mark.parametrize("version", VERSIONS)
def test_python_versions(version: str, arguments: list[str], tmp_path: Path) -> None:
    other = _interpreter(version)
    if other is None:
        pytest.skip(f"no Python {version} with the package's needs (GEC_PYTHON_{version})")
    here = _written(sys.executable, tmp_path / "here", arguments)
    assert _written(other, tmp_path / "there", arguments) == here


@pytest.mark.parametrize(
    "command",
    [
        ["compile", "-q", "-o", "out", "--html", "report.html"],
        ["compile", "-q", "--strategy", "default", "--launch", "host"],
        ["compile", "-q", "--strategy", "compute_overlap", "--streams", "2"],
        ["profile", "-q", "-o", "traces", "--format", "all"],
        ["sweep", "--streams", "1,2"],
    ],
    ids=lambda command: "-".join(command[:4]),
)
def test_floats_are_added_exactly(
    command: list[str],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``sum`` of floats gives other bits since Python 3.12; ``math.fsum`` the same in all."""
    plain = builtins.sum

    def checked(items: Iterable[Any], /, start: Any = 0) -> Any:
        found = list(items)
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__", "").startswith("gecompiler."):
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            assert not any(isinstance(item, float) for item in [start, *found]), place
        return plain(found, start)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "sum", checked)
    with pytest.raises(SystemExit) as left:
        main([command[0], *arguments, *command[1:]])
    assert left.value.code in (0, None)
