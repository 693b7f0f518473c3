from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecompiler.arrays import load_arrays, save_arrays
from gecompiler.comparison import compare_outputs, comparison_text
from gecompiler.ir.errors import UsageError


def _ok(found: object, expected: object) -> bool:
    rows = compare_outputs({"y": np.asarray(found)}, {"y": np.asarray(expected)}, 1e-3, 1e-4)
    return all(row.ok for row in rows)


def test_agreement_is_within_atol_plus_rtol_of_the_expected() -> None:
    assert _ok([1000.9], [1000.0])
    assert not _ok([1001.2], [1000.0])
    assert _ok([5e-5], [0.0])
    assert not _ok([2e-4], [0.0])


def test_nan_agrees_with_nan_and_infinity_with_itself_only() -> None:
    assert _ok([np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf])
    assert not _ok([np.nan], [1.0])
    assert not _ok([np.inf], [-np.inf])
    assert not _ok([1.0], [np.nan])


def test_shapes_and_names_must_agree() -> None:
    assert not _ok([[1.0]], [1.0])
    rows = compare_outputs({"y": np.ones(2)}, {"z": np.ones(2)}, 0, 0)
    assert [(r.name, r.ok) for r in rows] == [("y", False), ("z", False)]


def test_other_kinds_of_arrays() -> None:
    assert _ok(np.array(["a"], object), np.array(["a"], object))
    assert not _ok(np.array(["a"], object), np.array(["b"], object))
    assert _ok(np.array([True]), np.array([True]))
    assert _ok(np.zeros((0, 3)), np.zeros((0, 3)))
    assert not _ok(np.array([2**53 + 1]), np.array([0]))


def test_the_text_ends_in_a_verdict() -> None:
    rows = compare_outputs({"y": np.ones(2)}, {"y": np.zeros(2)}, 0, 0)
    text = comparison_text(rows, 0, 0)
    assert text.splitlines()[-1].startswith("FAILED: 1 of 1")
    assert "max abs 1" in text


def test_arrays_are_read_and_written_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_arrays(path, {"x/y:0": np.arange(3)})
    assert load_arrays(path)["x/y:0"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"text"])
def test_anything_but_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.npz"):
        load_arrays(tmp_path / "a.npz")


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    with pytest.raises(UsageError):
        load_arrays(tmp_path / "a.npz")


def test_one_array_without_a_name_and_damaged_data_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    np.savez_compressed(tmp_path / "b.npz", x=np.arange(1000))
    data = bytearray((tmp_path / "b.npz").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    (tmp_path / "b.npz").write_bytes(data)
    for name in ("a.npy", "b.npz"):
        with pytest.raises(UsageError, match=name):
            load_arrays(tmp_path / name)


def test_json_rows_hold_no_nan() -> None:
    (row,) = compare_outputs({"y": np.array([np.nan])}, {"y": np.array([1.0])}, 0, 0)
    assert row.as_dict()["max_abs"] is None
