"""Element types and the types of values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir import DType, TensorType, symbol, tensor
from gecompiler.ir.types import OpaqueType


@pytest.mark.parametrize("dtype", list(DType))
def test_names_codes_and_numpy_types_belong_together(dtype: DType) -> None:
    assert DType.from_code(dtype.code) is dtype
    assert DType.from_short(dtype.short) is dtype
    assert DType.from_numpy(dtype.numpy) is dtype
    assert [dtype.is_float, dtype.is_integer].count(True) <= 1
    assert dtype.is_real == (dtype not in (DType.STRING, DType.C64, DType.C128))


@pytest.mark.parametrize("dtype", list(DType))
def test_onnx_agrees(dtype: DType) -> None:
    if dtype.code not in onnx.TensorProto.DataType.values():
        pytest.skip("this release of onnx does not know the type")
    assert onnx.helper.tensor_dtype_to_np_dtype(dtype.code) == dtype.numpy
    if dtype not in (DType.STRING, DType.BOOL):
        finfo = dtype.numpy.itemsize * 8
        assert dtype.bits == finfo or (dtype.bits < 8 and finfo == 8)


def test_every_type_of_onnx_is_there() -> None:
    codes = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
    assert codes <= {d.code for d in DType}


def test_bits_of_packed_types() -> None:
    packed = {d.short: d.bits for d in DType if d.bits < 8}
    assert packed == {"u4": 4, "i4": 4, "f4e2m1": 4, "u2": 2, "i2": 2, "f6e2m3": 6, "f6e3m2": 6}


def test_kinds() -> None:
    assert DType.BF16.is_float
    assert DType.F8E4M3FN.is_float
    assert not DType.BOOL.is_float
    assert not DType.BOOL.is_integer
    assert DType.U4.is_integer
    assert not DType.STRING.is_integer


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="element type 99 is not known"):
        DType.from_code(99)
    with pytest.raises(ValueError, match="element type 0 is not known"):
        DType.from_code(0)
    with pytest.raises(KeyError):
        DType.from_short("float")
    with pytest.raises(ValueError, match="no ONNX element type"):
        DType.from_numpy(np.dtype("datetime64[s]"))


def test_sizes_and_bytes() -> None:
    type_ = tensor("i4", (3, 5))
    assert type_.is_static
    assert (type_.rank, type_.sizes, type_.elements, type_.bytes) == (2, (3, 5), 15, 8)
    assert tensor("f32", ()).bytes == 4
    assert tensor("f32", (0, 7)).bytes == 0
    assert tensor("i2", (1,)).bytes == 1


@given(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(list(DType)))
def test_bytes_are_enough_for_all_bits(shape: list[int], dtype: DType) -> None:
    type_ = TensorType(dtype, tuple(shape))
    bits = int(np.prod(shape)) * dtype.bits
    assert 0 <= type_.bytes * 8 - bits < 8


def test_symbolic_types_bind() -> None:
    n = symbol("n")
    type_ = tensor("f32", (n, 2 * n + 1, symbol("m")))
    assert not type_.is_static
    assert type_.symbols() == {"n", "m"}
    assert type_.elements == n * (2 * n + 1) * symbol("m")
    assert type_.bind({"n": 2}) == tensor("f32", (2, 5, symbol("m")))
    assert type_.bind({"n": 2, "m": 3}).sizes == (2, 5, 3)
    with pytest.raises(ValueError, match=r"f32\[n, 2\*n \+ 1, m\] is not static"):
        type_.sizes  # noqa: B018  (the property raises)
    with pytest.raises(ValueError, match="is not static"):
        type_.bytes  # noqa: B018


def test_unknown_rank() -> None:
    type_ = TensorType(DType.F16, None)
    assert (type_.rank, type_.elements, type_.symbols()) == (None, None, set())
    assert not type_.is_static
    assert type_.bind({"n": 1}) == type_
    assert str(type_) == "f16[*]"


def test_text() -> None:
    assert str(tensor("bf16", (symbol("b"), 2))) == "bf16[b, 2]"
    assert str(tensor(DType.BOOL, ())) == "bool[]"
    assert str(OpaqueType("sequence(f32)", b"")) == "sequence(f32)"


def test_opaque_types_bind_nothing() -> None:
    type_ = OpaqueType("sequence(f32[n])", b"\x01")
    assert type_.bind({"n": 1}) is type_
    assert type_.symbols() == set()
