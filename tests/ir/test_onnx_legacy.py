"""Models of opsets 1 to 6, raised to 7."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ModelError
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.importer import load_onnx

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 5


def build(node, inputs, opset, constants=()):
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    stored = [numpy_helper.from_array(inputs[n], n) for n in constants]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "g", infos, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def run(node, inputs, opset, constants=()):
    proto = build(node, inputs, opset, constants)
    before = proto.SerializeToString(deterministic=True)
    diagnostics = Diagnostics()
    graph = load_onnx(proto, diagnostics=diagnostics)
    assert proto.SerializeToString(deterministic=True) == before
    assert graph.opsets[""] == 7
    assert "old-opset" in [w.code for w in diagnostics]
    infer_types(graph)
    found = run_reference(graph, {n: inputs[n] for n in graph.inputs})
    return [found[n] for n in node.output]


@pytest.mark.parametrize(
    ("shape", "attrs", "spread"),
    [
        ((2, 3, 4), {}, (2, 3, 4)),
        ((4,), {"broadcast": 1}, (1, 1, 4)),
        ((3, 4), {"broadcast": 1}, (1, 3, 4)),
        ((3,), {"broadcast": 1, "axis": 1}, (1, 3, 1)),
        ((2, 3), {"broadcast": 1, "axis": 0}, (2, 3, 1)),
        ((3,), {"broadcast": 1, "axis": -2}, (1, 3, 1)),
        ((), {"broadcast": 1}, (1, 1, 1)),
    ],
)
@pytest.mark.parametrize(("op", "numpy"), [("Sub", np.subtract), ("Greater", np.greater)])
def test_broadcasting(shape, attrs, spread, op, numpy):
    y = np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    node = helper.make_node(op, ["x", "y"], ["z"], **attrs)
    np.testing.assert_array_equal(run(node, {"x": X, "y": y}, 6)[0], numpy(X, y.reshape(spread)))


@pytest.mark.parametrize("slope", [np.array([0.5], np.float32), np.array([1, 2, 3], np.float32)])
def test_slopes_go_by_channel(slope):
    found = run(helper.make_node("PRelu", ["x", "s"], ["y"]), {"x": X, "s": slope}, 6)[0]
    np.testing.assert_array_equal(found, np.where(X < 0, X * slope.reshape(1, -1, 1), X))


@pytest.mark.parametrize(
    ("op", "attrs", "wanted"),
    [
        ("Cast", {"to": "INT32"}, X.astype(np.int32)),
        ("Reshape", {"shape": [0, -1]}, X.reshape(2, 12)),
        ("Pad", {"paddings": [0, 0, 1, 0, 0, 2]}, np.pad(X, ((0, 0), (0, 0), (1, 2)))),
        ("Relu", {"consumed_inputs": [0]}, np.maximum(X, 0)),
        ("Dropout", {"is_test": 0}, X),
        ("Selu", {}, np.where(X > 0, 1.0507 * X, 1.0507 * 1.6732 * (np.exp(X) - 1))),
    ],
)
def test_attributes(op, attrs, wanted):
    found = run(helper.make_node(op, ["x"], ["y"], **attrs), {"x": X}, 1)[0]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_axis_by_default_and_axes_by_input():
    joined = run(helper.make_node("Concat", ["x", "x"], ["y"]), {"x": X}, 1)[0]
    np.testing.assert_array_equal(joined, np.concatenate((X, X), 1))
    inputs = {"x": X, "n": np.array([3], np.float32), "a": np.array([1], np.float32)}
    tiled = run(helper.make_node("Tile", ["x", "n", "a"], ["y"]), inputs, 5, ("n", "a"))[0]
    np.testing.assert_array_equal(tiled, np.tile(X, (1, 3, 1)))
    inputs = {"x": X, "s": np.array([1, 2], np.float32)}
    node = helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1)
    first, second = run(node, inputs, 1, ("s",))
    np.testing.assert_array_equal(first, X[:, :1])
    np.testing.assert_array_equal(second, X[:, 1:])


def test_windows_and_scales():
    image = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=2.0)
    pooled = run(node, {"x": image}, 1)[0]
    np.testing.assert_allclose(
        pooled.ravel(), np.sqrt([0 + 1 + 9 + 16, 1 + 4 + 16 + 25]), rtol=1e-6
    )
    node = helper.make_node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=1.0)
    np.testing.assert_array_equal(run(node, {"x": image}, 1)[0], image.repeat(2, axis=2))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (helper.make_node("BatchNormalization", ["x"] * 5, ["y"]), "training mode"),
        (helper.make_node("Cast", ["x"], ["y"], to="ROMAN"), "no element type 'ROMAN'"),
        (helper.make_node("GlobalLpPool", ["x"], ["y"], p=1.5), "no whole number"),
        (helper.make_node("Tile", ["x", "x", "x"], ["y"]), "is no constant"),
    ],
)
def test_what_opset_7_has_no_form_of(node, words):
    with pytest.raises(ModelError, match=words) as caught:
        load_onnx(build(node, {"x": X}, 5))
    assert node.op_type in caught.value.where


def test_a_rank_that_is_not_told():
    unknown = helper.make_node("Scan", ["x"], ["h"], domain="ours")
    node = helper.make_node("Add", ["h", "y"], ["z"], broadcast=1, axis=1)
    proto = build(node, {"x": X, "y": X[0, 0]}, 6)
    proto.graph.node.insert(0, unknown)
    with pytest.raises(ModelError, match="rank of 'h' is needed"):
        load_onnx(proto)


def test_names_that_are_taken_are_left_alone():
    nodes = [
        helper.make_node("Add", ["x", "y"], ["z"], broadcast=1, axis=0),
        helper.make_node("Neg", ["y"], ["y_raised"]),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]),
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("z", "y_raised")]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", infos, outputs),
        opset_imports=[helper.make_opsetid("", 6)],
        ir_version=3,
    )
    graph = load_onnx(proto)
    infer_types(graph)
    y = np.array([1, 2], np.float32)
    found = run_reference(graph, {"x": np.zeros((2, 3), np.float32), "y": y})
    np.testing.assert_array_equal(found["z"], [[1] * 3, [2] * 3])
    np.testing.assert_array_equal(found["y_raised"], -y)


OPS = ("Add", "PRelu", "BatchNormalization", "Cast", "Concat", "Pad", "LpPool", "Reshape", "Split")
OPS += ("Tile", "Upsample", "Selu", "GRU", "Gemm", "Dropout")
NAMES = ("axis", "broadcast", "to", "shape", "p", "is_test", "height_scale", "width_scale")
NAMES += ("paddings", "split", "consumed_inputs")
VALUES = st.one_of(
    st.sampled_from((0, 1, -1, 2, 2**62, -(2**62), 0.5, float("nan"), "FLOAT", "x", b"\xff")),
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=3),
    st.lists(st.floats(width=32), min_size=1, max_size=2),
)


@given(
    op=st.sampled_from(OPS),
    attrs=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    inputs=st.lists(st.sampled_from(("x", "v", "", "lost", "far", "text")), max_size=4),
    outputs=st.integers(0, 2),
    opset=st.integers(1, 6),
)
def test_whatever_an_old_file_holds_is_read_or_refused(op, attrs, inputs, outputs, opset):
    node = helper.make_node(op, inputs, [f"y{i}" for i in range(outputs)], **attrs)
    far = TensorProto(name="far", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    far.external_data.add(key="location", value="/etc/passwd")
    stored = [
        numpy_helper.from_array(np.array([2, 1], np.float32), "v"),
        helper.make_tensor("text", TensorProto.STRING, [1], [b"3"]),
        far,
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    out = [helper.make_empty_tensor_value_info("x")]
    graph = helper.make_graph([node], "g", [x], out, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    with suppress(ModelError):
        infer_types(load_onnx(proto))
