"""What is no ONNX model is told apart, in one message."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, parser

from gecompiler.ir import ModelError, load_onnx

MODEL = """<ir_version: 8, opset_import: ["": 17], producer_name: "maker">
small (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""


def proto() -> ModelProto:
    return parser.parse_model(MODEL)


def refusal(source: object) -> str:
    with pytest.raises(ModelError) as caught:
        load_onnx(source)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "Traceback" not in text
    assert "hint:" in text
    return text


def test_a_path_bytes_and_a_proto_give_the_same_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto().SerializeToString())
    sources = [path, str(path), path.read_bytes(), memoryview(path.read_bytes()), proto()]
    texts = {str(load_onnx(s)) for s in sources}  # type: ignore[arg-type]
    assert len(texts) == 1


def test_the_proto_handed_in_is_left_as_it_is() -> None:
    model = proto()
    before = model.SerializeToString(deterministic=True)
    load_onnx(model)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello world, this is no model", "not an ONNX model"),
        (bytes(range(256)), "not an ONNX model"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b'{"graph": {}}', "JSON"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x1c\x00\x00\x00TFL3abcd", "TFLite"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00{" + b'"a":{}}', "safetensors"),
        (b'ir_version: 8\ngraph { name: "g" }', "as text"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    text = refusal(path)
    assert words in text
    assert str(path) in text


def test_every_truncation_is_refused_or_gives_a_whole_model(tmp_path: Path) -> None:
    model = proto()
    model.doc_string = "documentation " * 5
    whole = model.SerializeToString()
    path = tmp_path / "m.onnx"
    refused = []
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            load_onnx(path)
        except ModelError as error:
            refused.append(str(error))
    assert len(refused) > len(whole) // 2
    assert any("truncated" in text for text in refused)
    assert all(str(path) in text for text in refused)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "none.onnx")
    assert "cannot be read" in refusal("bad\0name.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_devices_are_refused_and_pipes_read(tmp_path: Path) -> None:
    assert "no file" in refusal("/dev/zero")
    read, write = os.pipe()
    os.write(write, proto().SerializeToString())
    os.close(write)
    assert len(load_onnx(f"/dev/fd/{read}")) == 1
    os.close(read)


def test_an_unreadable_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto().SerializeToString())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in refusal(path)


def test_a_wrong_kind_of_source_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="ModelProto is expected, not int"):
        load_onnx(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("opset", "words"), [(-1, "oldest supported is 1"), (999, "knows up to"), (0, "too old")]
)
def test_opsets_out_of_range(opset: int, words: str) -> None:
    model = proto()
    model.opset_import[0].version = opset
    assert words in refusal(model)


def test_headers_that_make_no_sense() -> None:
    model = proto()
    model.ir_version = 99
    assert "IR version 99 is too new" in refusal(model)
    model = proto()
    model.ClearField("ir_version")
    assert "no ir_version" in refusal(model)
    model = proto()
    del model.opset_import[:]
    assert "imports no opset" in refusal(model)
    model = proto()
    model.opset_import.add(domain="ai.onnx", version=18)
    assert "imported at versions 17 and 18" in refusal(model)
    assert "no graph" in refusal(ModelProto(ir_version=8, opset_import=model.opset_import))


def test_names_that_are_no_text() -> None:
    model = proto()
    model.graph.node[0].name = "relu_at_fault"
    data = model.SerializeToString().replace(b"relu_at_fault", b"relu\xff\xfe\xfd_fault")
    assert "not UTF-8" in refusal(data)


def test_types_without_an_end_are_refused() -> None:
    model = proto()
    type_ = model.graph.input[0].type
    for _ in range(5000):
        type_ = type_.sequence_type.elem_type
    type_.tensor_type.elem_type = 1
    refusal_of_any_kind(model)


def refusal_of_any_kind(model: ModelProto) -> None:
    with pytest.raises(ModelError):
        load_onnx(model)


def test_every_opset_from_seven_on_loads() -> None:
    for opset in range(7, onnx.defs.onnx_opset_version() + 1):
        model = proto()
        model.opset_import[0].version = opset
        assert load_onnx(model).opsets == {"": opset}


def test_metadata_is_kept() -> None:
    model = proto()
    model.producer_version = "1.2"
    model.doc_string = "all of it"
    model.graph.doc_string = "the graph"
    model.model_version = 4
    model.metadata_props.add(key="author", value="someone")
    model.metadata_props.add(key="domain", value="clash")
    model.opset_import.add(domain="com.unused", version=2)
    graph = load_onnx(model)
    assert graph.metadata == {
        "producer_name": "maker",
        "producer_version": "1.2",
        "doc_string": "all of it",
        "ir_version": "8",
        "model_version": "4",
        "graph_doc_string": "the graph",
        "author": "someone",
        "metadata_props.domain": "clash",
    }
    assert graph.opsets == {"": 17, "com.unused": 2}
