"""Constants: their data, its absence, and that it never comes from elsewhere on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gecompiler.ir import Constant, DType, tensor
from gecompiler.ir.constants import within
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.types import TensorType

NUMPY_TYPES = [d.numpy for d in DType if d.bits >= 8 and d not in (DType.STRING, DType.BOOL)]


@pytest.mark.parametrize("dtype", list(DType))
def test_of_keeps_data_of_every_type(dtype: DType) -> None:
    source = np.array(["a", "b"], object) if dtype is DType.STRING else np.array([1, 2, 1])
    data = source.astype(dtype.numpy)
    constant = Constant.of(data)
    assert constant.type == TensorType(dtype, data.shape)
    assert constant.array().dtype == dtype.numpy
    assert constant.array().tolist() == data.tolist()
    assert Constant.of(source, dtype).digest == constant.digest


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_of_takes_any_array_that_onnx_can_hold(array: np.ndarray) -> None:
    try:
        constant = Constant.of(array)
    except ValueError as error:
        assert "no ONNX element type" in str(error)  # noqa: PT017  (most arrays do not raise)
        return
    assert constant.type.sizes == array.shape
    assert constant.size == array.size
    assert constant.array().dtype.isnative
    assert constant.array().dtype == constant.type.dtype.numpy
    np.testing.assert_array_equal(constant.array(), array)


def test_strings_are_objects() -> None:
    for array in (["ab", "c"], np.array(["ab", "c"]), np.array([b"ab", b"c"])):
        constant = Constant.of(array)
        assert constant.type == tensor("string", (2,))
        assert constant.array().dtype == object
        assert type(constant.array()[0]) in (str, bytes)


def test_plain_python_values() -> None:
    assert Constant.of(3).type == tensor("i64", ())
    assert Constant.of([1.5, 2]).type == tensor("f64", (2,))
    assert Constant.of([1.5, 2], DType.BF16).array().dtype == ml_dtypes.bfloat16
    assert Constant.of(True).scalar() is True


def test_data_cannot_be_written_to() -> None:
    array = np.zeros(3)
    constant = Constant.of(array)
    with pytest.raises(ValueError, match="read-only"):
        constant.array()[0] = 1
    array[0] = 1  # the caller's own array stays writable


def test_absent_data_is_missed_with_a_hint() -> None:
    constant = Constant.absent(tensor("f32", (2, 3)))
    assert not constant.has_data
    assert (constant.size, constant.scalar(), constant.digest) == (6, None, None)
    assert constant.small_array() is None
    with pytest.raises(MissingDataError, match=r"f32\[2, 3\] constant is absent") as caught:
        constant.array()
    assert "weights" in caught.value.hint


def test_a_source_is_asked_when_data_is_needed() -> None:
    class Source:
        asked = 0

        def load(self, type_: TensorType) -> np.ndarray:
            self.asked += 1
            return np.ones(type_.sizes, type_.dtype.numpy)

        def describe(self) -> str:
            return "ones"

    source = Source()
    constant = Constant(tensor("f32", (2,)), source=source)
    assert not constant.has_data
    assert constant.small_array() is None
    assert source.asked == 0
    assert constant.array().tolist() == [1, 1]
    assert source.asked == 1


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2.5, DType.F32, 2.5),
        ([[7]], DType.I4, 7),
        (0.1, DType.BF16, 0.10009765625),
        (1, DType.BOOL, True),
        ([1, 2], DType.I64, None),
        ("a", DType.STRING, None),
        (1j, DType.C64, None),
    ],
)
def test_scalar(value: object, dtype: DType, expected: object) -> None:
    found = Constant.of(value, dtype).scalar()
    assert (found, type(found)) == (expected, type(expected))


def test_small_array_has_a_limit() -> None:
    constant = Constant.of(np.zeros(10))
    assert constant.small_array(9) is None
    assert constant.small_array(10) is not None


@given(st.sampled_from(NUMPY_TYPES), st.data())
def test_digests_tell_apart_what_differs_and_nothing_else(
    dtype: np.dtype[np.generic], data: st.DataObject
) -> None:
    array = np.frombuffer(data.draw(st.binary(min_size=32, max_size=32)), dtype)
    constant = Constant.of(array)
    assert constant.digest == Constant.of(array.copy()).digest
    assert constant.digest == Constant.of(array.repeat(2)[::2]).digest  # strides are no content
    assert constant.digest != Constant.of(array.reshape(1, -1)).digest
    other = array.copy()
    other.view(np.uint8)[0] ^= 1
    assert constant.digest != Constant.of(other).digest


def test_digests_know_types_and_strings() -> None:
    zeros = [Constant.of(np.zeros(4), d).digest for d in (DType.F32, DType.I32, DType.U32)]
    assert len(set(zeros)) == 3
    assert Constant.of(["a", "b"]).digest != Constant.of(["ab", ""]).digest
    assert Constant.of(["a"]).digest != Constant.of(np.array([b"a"])).digest


# ---------------------------------------------------------------- files beside the model


def test_files_beside_the_model_are_found(tmp_path: Path) -> None:
    assert within(tmp_path, "w.bin") == (tmp_path / "w.bin").resolve()
    assert within(tmp_path, "data/../w.bin") == (tmp_path / "w.bin").resolve()
    assert within(tmp_path, "data/w.bin") == (tmp_path / "data" / "w.bin").resolve()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../w.bin", "a/../../w.bin", "/etc/passwd", "a\0b", "x" * 5000 + "/.."]
)
def test_nothing_outside_is_reached(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(MissingDataError, match="outside the model's folder"):
        within(folder, name)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_text("s")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "inside").symlink_to("real")
    for name in ("link", "up/secret", "loop", "loop/x"):
        with pytest.raises(MissingDataError):
            within(folder, name)
    assert within(folder, "inside") == folder.resolve() / "real"
    os.symlink(folder, tmp_path / "alias")
    assert within(tmp_path / "alias", "w.bin") == folder.resolve() / "w.bin"
