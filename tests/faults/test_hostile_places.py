"""Output places that somebody else prepared, and those that are no plain files or folders."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gecompiler.cli import main
from gecompiler.file_lock import locked
from gecompiler.files import OutputError, whole_file, whole_folder, write_text
from gecompiler.ir.errors import GecError
from gecompiler.ir.onnx_io.exporter import save_onnx
from gecompiler.models import build_spec
from gecompiler.sweep.journal import Journal
from gecompiler.whole_folder import settle

STAGE = ".gec-abcd_123.part"


def _state(folder: Path) -> dict[str, object]:
    """Every path below the folder: a link's target, a file's text, None for others."""

    def found() -> Iterator[tuple[str, object]]:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink():
                yield str(path.relative_to(folder)), os.readlink(path)
            else:
                yield str(path.relative_to(folder)), path.read_text() if path.is_file() else None

    return dict(found())


def _write(folder: Path, *names: str) -> None:
    with whole_folder(folder) as stage:
        for name in names:
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_text("new")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder outside that looks like the inside of a stage."""
    folder = tmp_path / "precious"
    (folder / "files" / "sub").mkdir(parents=True)
    (folder / "complete").touch()
    (folder / "files" / "letter").write_text("dear")
    (folder / "files" / "sub" / "letter").write_text("dearest")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output folder of an earlier run."""
    folder = tmp_path / "out"
    (folder / "sub").mkdir(parents=True)
    (folder / "letter").write_text("old")
    (folder / "sub" / "letter").write_text("old")
    return folder


def _complete(out: Path) -> Path:
    (out / STAGE / "files").mkdir(parents=True)
    (out / STAGE / "complete").touch()
    return out / STAGE


def _a_stage_that_is_a_link(out: Path, precious: Path) -> None:
    (out / STAGE).symlink_to(precious)


def _files_that_are_a_link(out: Path, precious: Path) -> None:
    _complete(out)
    (out / STAGE / "files").rmdir()
    (out / STAGE / "files").symlink_to(precious / "files")


def _a_file_that_is_a_link(out: Path, precious: Path) -> None:
    (_complete(out) / "files" / "letter").symlink_to(precious / "files" / "letter")


def _old_that_is_a_link(out: Path, precious: Path) -> None:
    (_complete(out) / "files" / "letter2").write_text("new")
    (out / "letter2").write_text("old")
    (out / STAGE / "old").symlink_to(precious / "files")


def _a_folder_within_that_is_a_link(out: Path, precious: Path) -> None:
    (_complete(out) / "files" / "away").mkdir()
    (out / STAGE / "files" / "away" / "letter").write_text("forged")
    (out / "away").symlink_to(precious / "files")


HOSTILE = [
    _a_stage_that_is_a_link,
    _files_that_are_a_link,
    _a_file_that_is_a_link,
    _old_that_is_a_link,
    _a_folder_within_that_is_a_link,
]


@pytest.mark.parametrize("prepare", HOSTILE)
def test_a_prepared_folder_moves_and_removes_nothing_outside(
    prepare: object, out: Path, precious: Path
) -> None:
    assert callable(prepare)
    prepare(out, precious)
    before = _state(precious)
    settle(out)
    with whole_folder(out) as stage:
        (stage / "report.json").write_text("new")
    assert _state(precious) == before
    assert (out / "report.json").read_text() == "new"
    assert (out / "letter").read_text() == "old"


def test_a_pipe_named_as_a_stage_does_not_hang(out: Path) -> None:
    os.mkfifo(out / STAGE)
    os.mkfifo(out.parent / f".gec-out-{'a' * 8}.part")
    os.mkfifo(out / f".report.json.{'a' * 8}.part")
    with whole_folder(out) as stage:
        (stage / "report.json").write_text("new")
    write_text(out / "report.json", "newer")
    assert (out / "report.json").read_text() == "newer"
    with locked(out / STAGE):
        pass


def test_nothing_is_written_through_a_link_within_the_folder(out: Path, precious: Path) -> None:
    (out / "prof").symlink_to(precious)
    before = _state(precious), _state(out)
    with pytest.raises(OutputError, match="a link leads out"):
        _write(out, "letter", "prof/complete")
    assert (_state(precious), _state(out)) == before


def test_a_link_named_as_an_output_is_replaced_not_followed(out: Path, precious: Path) -> None:
    (out / "report.json").symlink_to(precious / "complete")
    (out / "trace.json").symlink_to("nowhere")
    with whole_folder(out) as stage:
        (stage / "report.json").write_text("new")
        (stage / "trace.json").write_text("new")
    assert (precious / "complete").read_text() == ""
    assert not (out / "report.json").is_symlink()
    assert (out / "trace.json").read_text() == "new"


def test_links_come_back_where_the_whole_cannot_be_written(out: Path, precious: Path) -> None:
    (out / "a.json").symlink_to("nowhere")
    (out / "b.json").symlink_to(precious / "complete")
    (out / "c.json").mkdir()
    before = _state(out)
    with pytest.raises(OutputError):
        _write(out, "a.json", "b.json", "c.json")
    assert _state(out) == before


def test_another_folders_stage_is_left_alone(tmp_path: Path) -> None:
    """Neither that of a folder whose name begins as this one's, nor that of one within."""
    (tmp_path / "a").mkdir()
    for stage in (tmp_path / f".gec-a-b-{'x' * 8}.part", tmp_path / "a" / f".gec-c-{'x' * 8}.part"):
        (stage / "files").mkdir(parents=True)
        (stage / "files" / "report.json").write_text("of another")
        (stage / "complete").touch()
    before = _state(tmp_path)
    settle(tmp_path / "a")
    assert _state(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["a[1]*?", "y" * 250, "名" * 80, os.fsdecode(b"\xff\xfe"), "-", "a b"]
)
def test_odd_names(name: str, tmp_path: Path) -> None:
    for text in ("first", "second"):
        with whole_folder(tmp_path / name) as stage:
            (stage / "report.json").write_text(text)
        write_text(tmp_path / f"{name}.csv", text)
        assert (tmp_path / name / "report.json").read_text() == text
        assert (tmp_path / f"{name}.csv").read_text() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, f"{name}.csv"])


def test_a_name_that_is_too_long_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError), whole_folder(tmp_path / ("x" * 300)):
        pass
    with pytest.raises(OutputError), whole_file(tmp_path / ("x" * 300)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "report")
    reader.join(10)
    assert got == ["report"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no such device")
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    place = tmp_path / "full"
    place.symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left"):
        write_text(place, "report")
    place = tmp_path / "null"
    place.symlink_to("/dev/null")
    write_text(place, "report")
    assert place.is_symlink()
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "command",
    [
        *("compile --html", "run --inputs in.npz --save", "sweep -o", "sweep --fresh --journal"),
        *("tune -o", "plan --cards 2 -o"),
    ],
)
def test_no_command_replaces_its_model(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tmp_path / "m.onnx"
    spec = Path(__file__).resolve().parent.parent.parent / "examples" / "tiny-llama.yaml"
    save_onnx(build_spec(spec, weights="random"), model)
    before = model.read_bytes()
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()
    sizes = ["--batch", "1", "--seq", "8"]
    np.savez(
        "in.npz", input_ids=np.zeros((1, 8), np.int64), attention_mask=np.ones((1, 8), np.int64)
    )
    with pytest.raises(SystemExit) as ended:
        main([name, "m.onnx", *sizes, *options, "m.onnx", "-q"])
    assert ended.value.code == 2
    assert "this is the model itself" in capsys.readouterr().err
    assert model.read_bytes() == before


def test_a_journal_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal")
    with pytest.raises(GecError, match="no regular file"):
        Journal(tmp_path / "journal", "key")
