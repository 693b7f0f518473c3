"""Whatever ends a process, an output folder is the old one or the new one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import killing

from gecompiler.files import whole_file, whole_folder
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.models import build_spec
from gecompiler.whole_folder import settle

NEW = {"a.json": b"new a", "b/c.json": b"new c", "d.json": b"new d"}
OLD = {"a.json": b"old a", "b/c.json": b"old c", "other.txt": b"stays"}

WRITER = """
import os, signal, sys
from pathlib import Path
calls = 0
def dying(name, plain):
    def call(*args, **more):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args, **more)
    setattr(os, name, call)
for name in ("rename", "replace", "link", "mkdir", "unlink", "rmdir", "chmod", "open", "utime"):
    dying(name, getattr(os, name))
from gecompiler.files import whole_folder
with whole_folder(Path(sys.argv[1])) as stage:
    (stage / "b").mkdir()
    (stage / "a.json").write_text("new a")
    (stage / "b" / "c.json").write_text("new c")
    (stage / "d.json").write_text("new d")
"""


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("there", [False, True], ids=["a new folder", "a folder with files"])
def test_a_kill_at_every_step(there: bool, tmp_path: Path) -> None:
    old = OLD if there else {}
    ended = False
    for step in range(1, 80):
        folder = tmp_path / str(step) / "out"
        folder.parent.mkdir()
        if there:
            _write(folder, old)
        command = [sys.executable, "-c", WRITER, str(folder), str(step)]
        code = subprocess.run(command, check=False, cwd=killing.ROOT).returncode
        assert code in (0, -signal.SIGKILL)
        settle(folder)
        found = killing.state(folder)
        assert found in (old, {**old, **NEW}), step
        assert not [p for p in folder.parent.rglob("*.part") if p.name != ""], step
        if code == 0:
            assert found == {**old, **NEW}
            ended = True
            break
    assert ended


def test_the_next_writer_finishes_what_was_begun(tmp_path: Path) -> None:
    """A stage that is complete counts, also where no file of it has been moved yet."""
    folder = tmp_path / "out"
    _write(folder, OLD)
    _write(folder / ".gec-dead0000.part" / "files", NEW)
    (folder / ".gec-dead0000.part" / "complete").touch()
    with whole_folder(folder) as stage:
        (stage / "e.json").write_text("more")
    assert killing.state(folder) == {**OLD, **NEW, "e.json": b"more"}
    assert not list(folder.glob(".gec-*"))


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with whole_folder(folder) as first:
        (first / "a.json").write_text("first")
        with whole_folder(folder) as second:
            (second / "a.json").write_text("second")
        assert killing.state(folder) == {"a.json": b"second"}
    assert killing.state(folder) == {"a.json": b"first"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_what_a_killed_writer_left_beside_a_file_goes(tmp_path: Path) -> None:
    (tmp_path / ".table.csv.dead0000.part").write_text("half")
    (tmp_path / ".other.csv.dead0000.part").write_text("somebody else's")
    with whole_file(tmp_path / "table.csv") as part:
        part.write_text("whole")
        assert len(list(tmp_path.glob(".table.csv.*.part"))) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.csv.dead0000.part", "table.csv"]


def _tiny(folder: Path) -> Path:
    spec = killing.ROOT / "examples" / "tiny-llama.yaml"
    save_onnx(build_spec(spec, weights="random"), folder / "tiny.onnx")
    return folder / "tiny.onnx"


def _campaign(folder: Path, kills: int, seed: int) -> None:
    for name, found in killing.campaign(_tiny(folder), folder, kills, seed).items():
        assert set(found) <= {"old", "new"}, (name, found)


def test_random_kills(tmp_path: Path) -> None:
    _campaign(tmp_path, 5, seed=1)


@pytest.mark.slow
def test_two_hundred_random_kills(tmp_path: Path) -> None:
    _campaign(tmp_path, 200, seed=0)
