"""Exported models say what the graph says, and files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, parser

from gecompiler.ir import (
    Constant,
    DType,
    Graph,
    ModelError,
    Op,
    OpInfo,
    State,
    UsageError,
    load_onnx,
    save_onnx,
    symbol,
    tensor,
    to_onnx,
)
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.ir.types import OpaqueType

F = tensor("f32", (2, 3))


def model(body: str, *, opset: int = 17, ir: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]>\n{body}')


def linear(weight: Constant, bias: Constant | None = None) -> Graph:
    graph = Graph("linear", {"": 17})
    graph.add_input("x", tensor("f32", (symbol("batch"), 3)))
    graph.add_constant("w", weight)
    graph.add_constant("b", bias or Constant.of(np.ones(4, np.float32)))
    graph.add_op(Op("mm", "MatMul", ("x", "w"), ("t",)))
    out = tensor("f32", (symbol("batch"), 4))
    graph.add_op(Op("add", "Add", ("t", "b"), ("y",)), [out])
    graph.set_outputs(["y"])
    return graph


def dense(seed: int = 0, rows: int = 3) -> Constant:
    return Constant.of(np.random.default_rng(seed).standard_normal((rows, 4), np.float32))


def run(source: str | bytes) -> np.ndarray:
    session = onnxruntime.InferenceSession(source)
    found: np.ndarray = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})[0]
    return found


# ---------------------------------------------------------------- models


def test_a_graph_runs_as_a_model_and_comes_back() -> None:
    graph = linear(dense())
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(
        run(proto.SerializeToString()), x @ graph.constants["w"].array() + 1, rtol=1e-6
    )
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    again = load_onnx(proto)
    assert [op.name for op in again.ops] == ["mm", "add"]
    assert again.type("x") == graph.type("x")
    assert to_onnx(again).graph == proto.graph


def test_ops_come_in_topological_order() -> None:
    graph = Graph("late", {"": 17})
    graph.add_input("x", F)
    graph.add_op(Op("a", "Relu", ("x",), ("va",)))
    graph.add_op(Op("b", "Relu", ("va",), ("vb",)))
    graph.add_op(Op("c", "Relu", ("x",), ("vc",)))
    graph.set_input("b", 0, "vc")
    graph.set_outputs(["vb", "va"])
    assert [n.name for n in to_onnx(graph).graph.node] == ["a", "c", "b"]


def test_equal_graphs_give_equal_bytes() -> None:
    first, second = (to_onnx(linear(dense())).SerializeToString() for _ in range(2))
    assert first == second


def test_ops_of_the_products_own_domain_stay_at_home() -> None:
    graph = Graph("own", {"": 17})
    graph.add_input("x", F)
    for i in range(5):
        op = Op(f"fa{i}", "FlashAttention", ("x",), (f"y{i}",), domain=GE_DOMAIN)
        graph.add_op(op)
    graph.set_outputs(["y0"])
    with pytest.raises(ModelError, match=r"5 ops have no form in ONNX: 'fa0' \(gecompiler.Flash"):
        to_onnx(graph)


def test_a_body_is_not_exported_alone() -> None:
    graph = Graph("body", {"": 17})
    graph.add_outer("z", F)
    graph.set_outputs(["z"])
    with pytest.raises(ModelError, match="takes 'z' from around it"):
        to_onnx(graph)


@pytest.mark.parametrize(
    ("opset", "dtype", "version"),
    [
        (7, DType.F32, 4),
        (17, DType.F32, 8),
        (19, DType.F8E4M3FN, 9),
        (17, DType.I4, 10),
        (23, DType.F4E2M1, 11),
        (17, DType.U2, 13),
        (17, DType.F6E2M3, 14),
    ],
)
def test_the_ir_version_follows_opsets_and_types(opset: int, dtype: DType, version: int) -> None:
    graph = Graph("typed", {"": opset})
    graph.add_input("x", tensor(dtype, (2,)))
    graph.set_outputs(["x"])
    assert to_onnx(graph).ir_version == version
    graph.metadata["ir_version"] = "99"
    assert to_onnx(graph).ir_version == version


def test_the_ir_version_of_an_imported_model_does_not_sink() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }", ir=10)
    assert to_onnx(load_onnx(proto)).ir_version == 10


def test_metadata_comes_back() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.producer_name, proto.doc_string, proto.model_version = "maker", "text", 3
    proto.graph.doc_string = "graph text"
    proto.metadata_props.add(key="author", value="someone")
    proto.metadata_props.add(key="domain", value="clash")
    proto.opset_import.add(domain="com.unused", version=2)
    again = to_onnx(load_onnx(proto))
    for field in ("producer_name", "doc_string", "model_version", "metadata_props", "opset_import"):
        assert getattr(again, field) == getattr(proto, field)
    assert again.graph.doc_string == "graph text"


def test_declared_state_comes_back() -> None:
    graph = Graph("cache", {"": 17})
    for name in ("past", "step"):
        graph.add_input(name, F)
    graph.add_op(Op("cat", "Concat", ("past", "step"), ("present",), {"axis": 0}))
    graph.set_outputs(["present"])
    graph.set_states([State("past", "present", 0)])
    proto = to_onnx(graph)
    assert load_onnx(proto).states == graph.states
    assert to_onnx(load_onnx(proto)).metadata_props == proto.metadata_props
    for nonsense in ("{", "[1]", '[["past", "nowhere", 0]]', "[" * 10_000, '[["past"]]'):
        proto.metadata_props[0].value = nonsense
        assert load_onnx(proto).states == ()


def test_attributes_take_the_kind_that_the_schema_asks_for() -> None:
    graph = Graph("kinds", {"": 20})
    graph.add_input("x", tensor("f32", (1, 1, 4, 4)))
    graph.add_op(Op("l", "LeakyRelu", ("x",), ("a",), {"alpha": 1}))
    graph.add_op(Op("p", "MaxPool", ("a",), ("b",), {"kernel_shape": (2, 2), "strides": ()}))
    graph.add_op(Op("t", "Transpose", ("b",), ("c",), {"perm": (3, 2, 1, 0)}))
    strings = {"value_strings": ()}
    graph.add_op(Op("s", "Constant", (), ("d",), strings))
    graph.set_outputs(["c", "d"])
    kinds = {
        a.name: onnx.AttributeProto.AttributeType.Name(a.type)
        for n in to_onnx(graph).graph.node
        for a in n.attribute
    }
    assert kinds == {
        "alpha": "FLOAT",
        "kernel_shape": "INTS",
        "strides": "INTS",
        "perm": "INTS",
        "value_strings": "STRINGS",
    }


def test_attributes_of_every_kind_come_back() -> None:
    body = Graph("body", {"": 17})
    body.metadata["ir_version"] = "8"
    body.add_constant("k", Constant.of(np.float32(1)))
    body.set_outputs(["k"])
    type_ = OpaqueType("f32[*]", onnx.TypeProto(tensor_type={"elem_type": 1}).SerializeToString())
    attrs = {
        "i": 3,
        "f": 0.5,
        "s": "text",
        "raw": b"\xff\xfe",
        "ints": (1, 2),
        "floats": (0.5, 2.0),
        "strings": ("a", b"\xff"),
        "t": Constant.of(np.arange(3)),
        "tensors": (Constant.of(np.arange(2)), Constant.of(np.float32(2))),
        "g": body,
        "graphs": (body, body),
        "tp": type_,
        "types": (type_, type_),
    }
    from gecompiler.ir.onnx_io.attrs import read_attr, write_attr

    def write(graph: Graph, proto: onnx.GraphProto) -> None:
        proto.CopyFrom(to_onnx(graph).graph)

    def read(_: str, proto: onnx.GraphProto) -> Graph:
        return load_onnx(onnx.ModelProto(ir_version=8, graph=proto, opset_import=OPSET))

    for name, value in attrs.items():
        proto = onnx.AttributeProto()
        write_attr(proto, name, value, None, write, "here")
        found = read_attr(proto, read, None, "here")
        assert _plain(found) == _plain(value), name
    with pytest.raises(ModelError, match="holds a dict"):
        write_attr(onnx.AttributeProto(), "bad", {}, None, write, "here")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="lists dict, int"):
        write_attr(onnx.AttributeProto(), "bad", (1, {}), None, write, "here")  # type: ignore[arg-type]


OPSET = [onnx.helper.make_opsetid("", 17)]


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Constant):
        return value.type, value.array().tolist()
    return str(value) if isinstance(value, Graph) else value


def test_names_in_bodies_give_way_to_those_around() -> None:
    body = Graph("then", {"": 17})
    body.add_outer("x", F)
    body.add_op(Op("r", "Relu", ("x",), ("y",)), [F])
    body.add_op(Op("n", "Neg", ("y",), ("y_1",)), [F])
    body.set_outputs(["y_1"])
    handed_on = Graph("else", {"": 17})
    handed_on.add_outer("x", F)
    handed_on.set_outputs(["x"])
    graph = Graph("outer", {"": 17})
    graph.add_input("c", tensor("bool", ()))
    graph.add_input("x", F)
    graph.add_op(Op("a", "Abs", ("x",), ("y",)), [F])
    attrs = {"then_branch": body, "else_branch": handed_on}
    graph.add_op(Op("if", "If", ("c",), ("z",), attrs), [F])
    graph.set_outputs(["z", "y"])
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    assert (session.run(["z"], {"c": np.array(True), "x": x})[0] == -np.maximum(x, 0)).all()
    assert (session.run(["z"], {"c": np.array(False), "x": x})[0] == x).all()


def test_scope_group_and_label_come_back() -> None:
    graph = linear(dense())
    infos = {
        "mm": OpInfo(scope="/model/mlp/gate_proj", group="MLP gate", label="side", sources=("mm",)),
        "add": OpInfo(scope="", group="Mine", sources=("add",)),
    }
    for name, info in infos.items():
        graph.replace_op(name, graph.op(name).with_(info=info))
    again = load_onnx(to_onnx(graph))
    assert {op.name: op.info for op in again.ops} == infos


# ---------------------------------------------------------------- data


def test_absent_constants_come_back_absent() -> None:
    graph = linear(Constant.absent(tensor("f32", (3, 4))))
    proto = to_onnx(graph)
    again = load_onnx(proto)
    assert again.constants["w"].type == tensor("f32", (3, 4))
    assert again.constants["w"].source is None
    assert not again.constants["w"].has_data
    assert again.constants["b"].has_data
    assert to_onnx(again) == proto


def test_without_data_weights_go_and_shapes_stay() -> None:
    graph = linear(Constant.of(np.zeros((3, 4000), np.float32)))
    for name, array in {
        "shape": np.arange(4),
        "mask": np.zeros((100, 100), bool),
        "table": np.zeros((1025, 1025), np.int64),
    }.items():
        graph.add_constant(name, Constant.of(array))
    found = {
        t.name: t.HasField("raw_data") for t in to_onnx(graph, include_data=False).graph.initializer
    }
    assert found == {"w": False, "b": True, "shape": True, "mask": True, "table": False}


class Elsewhere:
    """A source that is no file."""

    def load(self, type_: object) -> np.ndarray:
        return np.ones((3, 4), np.float32)

    def describe(self) -> str:
        return "elsewhere"


def test_data_from_other_sources_is_loaded(tmp_path: Path) -> None:
    graph = linear(Constant(tensor("f32", (3, 4)), source=Elsewhere()))
    assert load_onnx(to_onnx(graph)).constants["w"].array().sum() == 12
    save_onnx(graph, tmp_path / "m.onnx", external_data=True)
    assert load_onnx(tmp_path / "m.onnx").constants["w"].array().sum() == 12


class Missing(Elsewhere):
    """A source that derives its data from what is missing."""

    def load(self, type_: object) -> np.ndarray:
        raise MissingDataError("not here")


@pytest.mark.parametrize("external_data", [True, False])
def test_data_that_other_sources_miss_stays_missing(tmp_path: Path, external_data: bool) -> None:
    graph = linear(Constant(tensor("f32", (3, 4)), source=Missing()))
    save_onnx(graph, tmp_path / "m.onnx", external_data=external_data)
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx"}
    found = load_onnx(tmp_path / "m.onnx").constants["w"]
    assert found.source is None
    assert not found.has_data


# ---------------------------------------------------------------- files


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.onnx"
    save_onnx(linear(dense()), path)
    assert files(path.parent) == {"m.onnx"}
    assert run(str(path)).shape == (2, 4)
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    big = dense(rows=3000)
    graph = linear(dense())
    graph.add_constant("big", big)
    path = tmp_path / "m.onnx"
    save_onnx(graph, path, external_data=True)
    assert files(tmp_path) == {"m.onnx", "m.onnx.data"}
    again = load_onnx(path)
    assert not again.constants["big"].has_data
    assert again.constants["w"].has_data
    np.testing.assert_array_equal(again.constants["big"].array(), big.array())
    np.testing.assert_array_equal(run(str(path)), run(to_onnx(graph).SerializeToString()))


def test_saving_over_a_model_whose_data_is_in_use(tmp_path: Path) -> None:
    graph = linear(dense(rows=3))
    graph.add_constant("big", dense(rows=3000))
    path = tmp_path / "m.onnx"
    save_onnx(graph, path, external_data=True)
    again = load_onnx(path)
    again.add_constant("more", dense(seed=5, rows=2000))
    save_onnx(again, path, external_data=True)
    assert files(tmp_path) == {"m.onnx", "m.onnx.data", "m.onnx.1.data"}
    third = load_onnx(path)
    for name in ("big", "more"):
        np.testing.assert_array_equal(again.constants[name].array(), third.constants[name].array())


def test_external_data_is_copied_to_another_folder_and_stays_in_its_own(tmp_path: Path) -> None:
    graph = linear(dense())
    graph.add_constant("big", dense(rows=3000))
    graph.add_constant("four", Constant.of(np.arange(4000) % 8, DType.I4))
    first = tmp_path / "a" / "m.onnx"
    save_onnx(graph, first, external_data=True)
    loaded = load_onnx(first)
    save_onnx(loaded, tmp_path / "a" / "other.onnx")
    assert files(tmp_path / "a") == {"m.onnx", "m.onnx.data", "other.onnx"}
    save_onnx(loaded, tmp_path / "b" / "m.onnx")
    assert files(tmp_path / "b") == {"m.onnx", "m.onnx.data"}
    for path in (tmp_path / "a" / "other.onnx", tmp_path / "b" / "m.onnx"):
        found = load_onnx(path)
        for name in ("big", "four"):
            np.testing.assert_array_equal(
                found.constants[name].array(), graph.constants[name].array()
            )


def test_missing_external_data_stays_missing(tmp_path: Path) -> None:
    proto = to_onnx(linear(dense()))
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "gone.bin", "offset": "0", "length": "48"}.items():
        weight.external_data.add(key=key, value=value)
    path = tmp_path / "a" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(proto.SerializeToString())
    graph = load_onnx(path)
    assert to_onnx(graph).graph == proto.graph
    save_onnx(graph, tmp_path / "b.onnx")
    again = load_onnx(tmp_path / "b.onnx")
    assert to_onnx(again).graph == proto.graph
    with pytest.raises(MissingDataError, match="constant 'w'"):
        again.constants["w"].array()


def test_a_model_too_large_for_one_file_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecompiler.ir.onnx_io.exporter.MAX_MODEL_BYTES", 10_000)
    graph = linear(dense())
    save_onnx(graph, tmp_path / "small.onnx")
    graph.add_constant("big", dense(rows=3000))
    save_onnx(graph, tmp_path / "large.onnx")
    assert files(tmp_path) == {"small.onnx", "large.onnx", "large.onnx.data"}


class Failing:
    """A source that fails while data is being written."""

    def load(self, type_: object) -> np.ndarray:
        raise OSError(28, "No space left on device")

    def describe(self) -> str:
        return "failing"


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"precious")
    for external in (True, False):
        graph = linear(Constant(tensor("f32", (3, 4)), source=Failing()))
        with pytest.raises(UsageError, match="No space left"):
            save_onnx(graph, path, external_data=external)
        assert path.read_bytes() == b"precious"
        assert files(tmp_path) == {"m.onnx"}


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = linear(dense())
    with pytest.raises(UsageError, match="is no file"):
        save_onnx(graph, tmp_path)
    (tmp_path / "plain").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        save_onnx(graph, tmp_path / "plain" / "m.onnx")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        save_onnx(graph, tmp_path / "m.onnx")
    assert files(tmp_path) == {"plain"}


def test_a_link_to_a_model_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    target = tmp_path / "target.onnx"
    save_onnx(linear(dense()), target)
    before = target.read_bytes()
    link = tmp_path / "link.onnx"
    link.symlink_to(target)
    save_onnx(linear(dense(seed=2)), link)
    assert target.read_bytes() == before
    assert link.read_bytes() != before
