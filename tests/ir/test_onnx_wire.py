"""Large data stays out of protobuf, and nothing else changes."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper, parser

from gecompiler.ir import UsageError, load_onnx, save_onnx, to_onnx
from gecompiler.ir.onnx_io import read as reading
from gecompiler.ir.onnx_io.wire import LARGE_BYTES, Tensor, nesting, put_together, take_apart

LARGE = LARGE_BYTES // 4


def model(sizes: list[int], seed: int = 0) -> ModelProto:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17], producer_name: "m">'
        "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    )
    rng = np.random.default_rng(seed)
    for i, size in enumerate(sizes):
        array = rng.standard_normal(size, np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    return proto


SIZES = st.lists(st.sampled_from([0, 1, LARGE - 1, LARGE, LARGE + 3, 3 * LARGE]), max_size=5)


@settings(max_examples=30)
@given(SIZES)
def test_the_parts_are_the_whole(sizes: list[int]) -> None:
    proto = model(sizes)
    data = proto.SerializeToString()
    parts = take_apart(memoryview(data))
    wanted = {i for i, size in enumerate(sizes) if size >= LARGE}
    if not wanted:
        assert parts is None
        return
    assert parts is not None
    assert set(parts.large) == wanted
    assert len(parts.model) < len(data) - len(wanted) * LARGE_BYTES + 100
    found = ModelProto()
    found.ParseFromString(parts.model)
    for index, raw in parts.large.items():
        assert not found.graph.initializer[index].HasField("raw_data")
        found.graph.initializer[index].raw_data = bytes(raw)
    assert found == proto


@settings(max_examples=30)
@given(SIZES)
def test_what_is_put_together_is_read_as_it_was(sizes: list[int]) -> None:
    proto = model(sizes)
    tensors = []
    for t in proto.graph.initializer:
        raw = t.raw_data
        t.ClearField("raw_data")
        tensors.append((Tensor(t.SerializeToString(), len(raw)), [raw]))
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    file = io.BytesIO()
    put_together(file, proto.SerializeToString(), graph, tensors)
    found = ModelProto()
    found.ParseFromString(file.getvalue())
    expected = model(sizes)
    for a, b in zip(found.graph.initializer, expected.graph.initializer, strict=True):
        assert a.raw_data == b.raw_data
        a.raw_data = b.raw_data = b""
    assert found == expected


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_are_left_to_protobuf(data: st.DataObject) -> None:
    whole = bytearray(model([3, LARGE], seed=1).SerializeToString())
    head = [*range(60), *range(len(whole) - LARGE_BYTES - 60, len(whole) - LARGE_BYTES)]
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.sampled_from(head))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.sampled_from([len(whole), *head]))])
    parts = take_apart(memoryview(cut))
    nesting(memoryview(cut), 10)
    if parts is None:
        return
    direct, indirect = ModelProto(), ModelProto()
    try:
        direct.ParseFromString(cut)
    except Exception:  # protobuf's DecodeError
        return
    indirect.ParseFromString(parts.model)
    for index, raw in parts.large.items():
        indirect.graph.initializer[index].raw_data = bytes(raw)
    assert direct == indirect


def test_two_graph_fields_are_merged_by_protobuf_alone() -> None:
    data = model([LARGE]).SerializeToString()
    assert take_apart(memoryview(data + data)) is None
    assert take_apart(memoryview(b"")) is None
    assert nesting(memoryview(b"\xff\xff"), 3) == 0


def test_large_data_is_a_view_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([LARGE, 3, LARGE + 1])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for threshold in (1, 2**30):  # mapped, read
        monkeypatch.setattr(reading, "MAPPED_FROM_BYTES", threshold)
        graph = load_onnx(path)
        for tensor in proto.graph.initializer:
            array = graph.constants[tensor.name].array()
            np.testing.assert_array_equal(array, numpy_helper.to_array(tensor))
            assert not array.flags.owndata
            assert not array.flags.writeable
        assert to_onnx(graph).graph.initializer == proto.graph.initializer
    del graph, array
    gc.collect()


def test_a_mapped_model_may_be_saved_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAPPED_FROM_BYTES", 1)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([LARGE, 2 * LARGE]).SerializeToString())
    graph = load_onnx(path)
    save_onnx(graph, path)
    again = load_onnx(path)
    for name, constant in graph.constants.items():
        np.testing.assert_array_equal(constant.array(), again.constants[name].array())


@settings(max_examples=10, deadline=None)
@given(SIZES)
def test_saved_files_hold_what_models_in_memory_hold(sizes: list[int]) -> None:
    import tempfile

    graph = load_onnx(model(sizes))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        save_onnx(graph, path)
        found = ModelProto()
        found.ParseFromString(path.read_bytes())
    expected = to_onnx(graph)
    order = {t.name: t for t in found.graph.initializer}
    assert [order[t.name] for t in expected.graph.initializer] == list(expected.graph.initializer)
    for proto in (found, expected):
        del proto.graph.initializer[:]
    assert found == expected


def test_damage_within_large_tensors_is_told(tmp_path: Path) -> None:
    proto = model([LARGE])
    proto.graph.initializer[0].dims[0] = LARGE + 1
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(reading.ModelError, match="holds 65536 bytes where"):
        load_onnx(path)


def test_more_than_two_gibibytes_are_told_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecompiler.ir.onnx_io.files.MAX_FILE_BYTES", 100_000)
    graph = load_onnx(model([2 * LARGE]))
    with pytest.raises(UsageError, match="more than 2 GiB"):
        save_onnx(graph, tmp_path / "m.onnx", external_data=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_beyond_two_gibibytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(2**31 + 10)
    with pytest.raises(reading.ModelError, match="larger than 2 GiB"):
        load_onnx(path)
