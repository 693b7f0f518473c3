"""Constants of every element type, from every place data can lie in."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper, parser

from gecompiler.ir import Constant, DType, ModelError, load_onnx, tensor, to_onnx
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.onnx_io.data import ExternalData, SparseData, read_sparse, read_tensor
from gecompiler.ir.onnx_io.write_data import write_tensor

NUMERIC = [d for d in DType if d is not DType.STRING]


def array_of(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.bits % 8:
        codes = rng.integers(0, 2**dtype.bits, shape, dtype=np.uint8)
        if dtype in (DType.I4, DType.I2):
            return (codes.astype(np.int8) - 2 ** (dtype.bits - 1)).astype(dtype.numpy)
        if dtype.is_integer:
            return codes.astype(dtype.numpy)
        return codes.view(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, (*shape, dtype.bits // 8), dtype=np.uint8)
    return np.ascontiguousarray(raw).view(dtype.numpy).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def model(initializers: list[TensorProto], text: str = "") -> ModelProto:
    proto = parser.parse_model(
        text
        or '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    proto.graph.initializer.extend(initializers)
    return proto


# ---------------------------------------------------------------- data in the file


@given(
    dtype=st.sampled_from(NUMERIC),
    shape=st.lists(st.integers(0, 4), max_size=3),
    seed=st.integers(0, 2**16),
)
def test_raw_data_reads_and_writes_back(dtype: DType, shape: list[int], seed: int) -> None:
    array = array_of(dtype, tuple(shape), seed)
    proto = numpy_helper.from_array(array, "c")
    constant = read_tensor(proto, "c", None, "m")
    assert constant.type == tensor(dtype, shape)
    assert same(constant.array(), array)
    assert not constant.array().flags.writeable
    back = TensorProto()
    write_tensor(back, "c", constant)
    assert back.SerializeToString() == proto.SerializeToString()


@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda d: d.short)
def test_typed_fields_read_as_raw_data_does(dtype: DType) -> None:
    array = array_of(dtype, (3, 5), 7)
    if dtype.bits % 8 == 0 and dtype.is_float:
        array = np.arange(15).reshape(3, 5).astype(dtype.numpy)
    raw = numpy_helper.from_array(array, "c").raw_data
    typed = TensorProto(name="c", data_type=dtype.code, dims=(3, 5))
    match dtype:
        case DType.F32 | DType.C64:
            typed.float_data.extend(np.frombuffer(raw, np.float32))
        case DType.F64 | DType.C128:
            typed.double_data.extend(np.frombuffer(raw, np.float64))
        case DType.I64:
            typed.int64_data.extend(np.frombuffer(raw, np.int64))
        case DType.U32 | DType.U64:
            typed.uint64_data.extend(array.reshape(-1).tolist())
        case DType.I32:
            typed.int32_data.extend(np.frombuffer(raw, np.int32))
        case DType.F16 | DType.BF16 | DType.U16:
            typed.int32_data.extend(np.frombuffer(raw, np.uint16))
        case DType.I16:
            typed.int32_data.extend(np.frombuffer(raw, np.int16))
        case DType.F6E2M3 | DType.F6E3M2:
            typed.int32_data.extend(array.view(np.uint8).reshape(-1))
        case _:  # one byte an entry, small types packed
            typed.int32_data.extend(np.frombuffer(raw, np.uint8))
    assert same(read_tensor(typed, "c", None, "m").array(), array)


def test_strings_keep_what_is_no_utf8() -> None:
    proto = TensorProto(name="s", data_type=TensorProto.STRING, dims=(2, 2))
    proto.string_data.extend([b"a", "ß".encode(), b"", b"\xff\xfe"])
    constant = read_tensor(proto, "s", None, "m")
    assert constant.array().tolist() == [["a", "ß"], ["", b"\xff\xfe"]]
    back = TensorProto()
    write_tensor(back, "s", constant)
    assert back == proto


def test_large_data_is_not_copied_again() -> None:
    proto = numpy_helper.from_array(np.zeros(2**16, np.float32), "c")
    array = read_tensor(proto, "c", None, "m").array()
    assert array.base is not None
    assert not array.flags.owndata


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"raw_data": b"123"}, "holds 3 bytes where f32[2, 2] needs 16"),
        ({"float_data": [1.0, 2.0, 3.0]}, "holds 3 items in float_data"),
        ({"int64_data": [1, 2, 3, 4]}, "holds 0 items in float_data"),
        ({"dims": [2, -2]}, "negative size"),
        ({"data_type": 0}, "element type 0"),
        ({"data_type": 99}, "element type 99"),
        ({"data_type": TensorProto.STRING, "raw_data": b"x"}, "string tensor must not"),
        ({"dims": [0, 2**62], "float_data": []}, "cannot be"),
    ],
)
def test_data_that_does_not_fit_its_type(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {"data_type": TensorProto.FLOAT, "dims": [2, 2], **change}
    proto = TensorProto(name="w", **fields)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="constant 'w'") as caught:
        load_onnx(model([proto]))
    assert words in str(caught.value)


def test_a_huge_shape_without_data_allocates_nothing() -> None:
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40, 2**40])
    constant = load_onnx(model([huge])).constants["w"]
    assert constant.size == 2**80
    with pytest.raises(MissingDataError, match="absent"):
        constant.array()


def test_segments_are_refused() -> None:
    proto = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    proto.segment.begin = 0
    with pytest.raises(ModelError, match="segments"):
        load_onnx(model([proto]))


# ---------------------------------------------------------------- data in another file


def external(name: str, shape: tuple[int, ...], dtype: DType = DType.F32, **entries: object):
    proto = TensorProto(name=name, data_type=dtype.code, dims=shape)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def load_beside(tmp_path: Path, proto: TensorProto) -> Constant:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([proto]).SerializeToString())
    return load_onnx(path).constants[proto.name]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I4, DType.F64], ids=str)
@pytest.mark.parametrize("offset", [0, 3, 64])
def test_external_data_is_read_when_asked_for(tmp_path: Path, dtype: DType, offset: int) -> None:
    array = array_of(dtype, (5, 3), 3)
    raw = numpy_helper.from_array(array).raw_data
    data = tmp_path / "weights.bin"
    constant = load_beside(
        tmp_path,
        external("w", (5, 3), dtype, location=data.name, offset=offset, length=len(raw)),
    )
    assert not constant.has_data
    with pytest.raises(MissingDataError, match=r"constant 'w' \(.*\) is missing"):
        constant.array()
    data.write_bytes(b"x" * offset + raw + b"tail")
    assert same(np.array(constant.array()), array)
    assert not constant.array().flags.writeable
    assert "weights.bin" in constant.source.describe()  # type: ignore[union-attr]


def test_external_data_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "d.bin").write_bytes(bytes(40))
    cases = {
        "starts? at byte 32": external("w", (4,), location="d.bin", offset=32),
        "take 12 bytes": external("w", (4,), location="d.bin", length=12),
        "start at byte 0 of a file of 40 bytes": external("w", (11,), location="d.bin"),
    }
    for words, proto in cases.items():
        with pytest.raises(MissingDataError, match=words):
            load_beside(tmp_path, proto).array()
    whole = load_beside(tmp_path, external("w", (10,), location="d.bin")).array()
    assert whole.shape == (10,)


@pytest.mark.parametrize("entry", [{"offset": -1}, {"length": "many"}, {"offset": "9" * 30}])
def test_byte_counts_that_are_none(tmp_path: Path, entry: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="is no byte count"):
        load_beside(tmp_path, external("w", (4,), location="d.bin", **entry))
    with pytest.raises(ModelError, match="not named"):
        load_beside(tmp_path, external("w", (4,)))


def test_external_data_stays_within_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(secret)
    for location in ("../secret.bin", str(secret), "link.bin", "a/../../secret.bin", "/dev/zero"):
        constant = load_beside(folder, external("w", (4,), location=location))
        with pytest.raises(MissingDataError, match="outside the model's folder"):
            constant.array()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_external_data_must_be_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "folder.bin").mkdir()
    for location in ("pipe.bin", "folder.bin"):
        constant = load_beside(tmp_path, external("w", (4,), location=location))
        with pytest.raises(MissingDataError, match="no regular file"):
            constant.array()


def test_a_model_in_memory_has_no_folder() -> None:
    constant = load_onnx(model([external("w", (4,), location="d.bin")])).constants["w"]
    with pytest.raises(MissingDataError, match="no folder"):
        constant.array()


# ---------------------------------------------------------------- sparse


def sparse(values: list[float], indices: object, dims: list[int]) -> SparseTensorProto:
    proto = SparseTensorProto(dims=dims)
    proto.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "s"))
    proto.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64)))
    return proto


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_initializers_stay_sparse(indices: object) -> None:
    proto = model([])
    proto.graph.sparse_initializer.append(sparse([7.0, 8.0], indices, [2, 3]))
    graph = load_onnx(proto)
    constant = graph.constants["s"]
    assert isinstance(constant.source, SparseData)
    assert constant.array().tolist() == [[0, 7, 0], [0, 0, 8]]
    again = to_onnx(graph).graph
    assert len(again.sparse_initializer) == 1
    back = read_sparse(again.sparse_initializer[0], "s", "m")
    assert back.array().tolist() == constant.array().tolist()


@pytest.mark.parametrize(
    ("values", "indices", "dims", "words"),
    [
        ([1.0], [6], [2, 3], "index lies outside"),
        ([1.0], [-1], [2, 3], "index lies outside"),
        ([1.0], [[0, 3]], [2, 3], "index lies outside"),
        ([1.0, 2.0], [1], [2, 3], "2 values have indices of shape"),
        ([1.0], [0], [2, -3], "is wrong"),
        ([1.0], [0], [], "is wrong"),
    ],
)
def test_malformed_sparse_tensors(
    values: list[float], indices: object, dims: list[int], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        read_sparse(sparse(values, indices, dims), "s", "m")


def test_a_huge_sparse_tensor_is_not_made_dense() -> None:
    constant = read_sparse(sparse([1.0], [5], [2**30, 2**30]), "s", "m")
    assert constant.size == 2**60
    with pytest.raises(MissingDataError, match="too large"):
        constant.array()


# ---------------------------------------------------------------- Constant ops


def constant_op(**attrs: object) -> Constant:
    node = helper.make_node("Constant", [], ["c"], **attrs)
    proto = model([])
    proto.graph.node.insert(0, node)
    graph = load_onnx(proto)
    assert [op.op_type for op in graph.ops] == ["Relu"]
    return graph.constants["c"]


def test_constant_ops_of_every_kind() -> None:
    value = np.array([[1, 2], [3, 4]], np.int16)
    assert same(constant_op(value=numpy_helper.from_array(value)).array(), value)
    assert same(constant_op(value_float=1.5).array(), np.array(1.5, np.float32))
    assert same(constant_op(value_floats=[1.5, 2.0]).array(), np.array([1.5, 2], np.float32))
    assert same(constant_op(value_int=-3).array(), np.array(-3, np.int64))
    assert same(constant_op(value_ints=[1, 2]).array(), np.array([1, 2], np.int64))
    assert constant_op(value_string="text").array().tolist() == "text"
    assert constant_op(value_strings=["a", "b"]).array().tolist() == ["a", "b"]
    made = constant_op(sparse_value=sparse([2.0], [1], [3]))
    assert made.array().tolist() == [0, 2, 0]
    absent = constant_op(value=TensorProto(data_type=TensorProto.FLOAT, dims=[3]))
    assert absent.type == tensor("f32", (3,))
    assert not absent.has_data


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({}, "found: none"),
        ({"value_int": 1, "value_float": 2.0}, "value_float, value_int|value_int, value_float"),
        ({"other": 1}, "found: other"),
        ({"value_int": 1.5}, "wrong kind"),
        ({"value_ints": 1}, "wrong kind"),
        ({"value": 1}, "wrong kind"),
    ],
)
def test_constant_ops_that_are_unclear(attrs: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        constant_op(**attrs)


def test_describe_and_size_of_what_is_elsewhere(tmp_path: Path) -> None:
    source = ExternalData("w", tmp_path, "d.bin", 8, None)
    constant = Constant(tensor("f32", (2,)), source=source)
    (tmp_path / "d.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    assert constant.array().tolist() == [2, 3]
    assert source.describe() == "d.bin at byte 8"
