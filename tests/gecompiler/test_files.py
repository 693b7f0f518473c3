from __future__ import annotations

import os
from pathlib import Path

import pytest

from gecompiler.files import OutputError, read_text, whole_folder, write_text
from gecompiler.ir.errors import UsageError


def test_a_text_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "a.json", "text")
    assert (tmp_path / "deep" / "a.json").read_text() == "text"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.json"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("old")

    def write_and_fail() -> None:
        with whole_folder(tmp_path) as stage:
            (stage / "report.json").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert (tmp_path / "report.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_folder_is_replaced_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("kept")
    with whole_folder(tmp_path) as stage:
        (stage / "report.json").write_text("new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.txt", "report.json"]


def test_an_unwritable_place_is_one_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_text(blocker / "a.json", "x")
    with pytest.raises(OutputError, match="hint"), whole_folder(blocker):
        pass


def test_files_get_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_reading_names_the_file_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.yaml.*No such file"):
        read_text(tmp_path / "absent.yaml", "the file")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_text(tmp_path / "binary", "the file")


def test_a_place_that_cannot_be_taken_leaves_the_old_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "full").write_text("")

    def write() -> None:
        with whole_folder(tmp_path) as stage:
            for name in "ab0":
                (stage / name).write_text("new")

    with pytest.raises(OutputError):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
