from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from onnx import TensorProto, numpy_helper

from gecompiler.backends.execution.arena import UNWRITTEN, Arena, available_memory
from gecompiler.backends.execution.packing import nbytes, pack, unpack
from gecompiler.ir.errors import GecError, ScheduleError
from gecompiler.ir.schedule import Buffer
from gecompiler.ir.types import DType

NUMBERS = [d for d in DType if d is not DType.STRING]


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.short)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2**32 - 1))
def test_what_is_packed_unpacks_to_the_same_bits(dtype, shape, seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, nbytes(dtype, tuple(shape)), dtype=np.uint8)
    if dtype is DType.BOOL:
        raw %= 2
    array = unpack(raw, dtype, tuple(shape))
    assert array.shape == tuple(shape)
    assert array.dtype == dtype.numpy
    again = pack(array, dtype)
    assert again.size == raw.size
    assert unpack(again, dtype, tuple(shape)).tobytes() == array.tobytes()


NARROW = [d for d in NUMBERS if d.bits < 8]


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.short)
def test_small_elements_are_packed_as_onnx_packs_them(dtype):
    raw = np.array([0x5A, 0xC3, 0x01], np.uint8)
    count = 3 * 8 // dtype.bits
    proto = TensorProto(data_type=dtype.code, dims=[count], raw_data=raw.tobytes())
    want = numpy_helper.to_array(proto)
    np.testing.assert_array_equal(unpack(raw, dtype, (count,)), want)
    assert pack(want, dtype).tobytes() == numpy_helper.from_array(want).raw_data


def test_memory_holds_a_tensor_at_its_address_and_poison_elsewhere():
    arena = Arena(64, "m")
    buffer = Buffer("t", 10, 12, "activation")
    arena.write(buffer, DType.F32, np.array([1, 2, 3], np.float32), "here")
    np.testing.assert_array_equal(arena.read(buffer, DType.F32, (3,)), [1, 2, 3])
    assert set(arena.bytes[:10]) | set(arena.bytes[22:]) == {UNWRITTEN}
    assert np.isnan(arena.read(Buffer("u", 32, 8, "activation"), DType.F64, (1,))).all()


def test_tensors_outside_their_buffer_or_the_arena_are_refused():
    arena = Arena(16, "m")
    with pytest.raises(ScheduleError, match="where 4 bytes are planned"):
        arena.write(Buffer("t", 0, 4, "activation"), DType.I64, np.zeros(1, np.int64), "here")
    with pytest.raises(ScheduleError, match=r"bytes \[12, 20\) of an arena of 16"):
        arena.read(Buffer("t", 12, 8, "activation"), DType.I64, (1,))


def test_more_memory_than_there_is_is_refused_before_it_is_taken():
    spare = available_memory()
    assert spare is None or spare > 0
    with pytest.raises(GecError, match="GiB"):
        Arena(2**62, "model")
