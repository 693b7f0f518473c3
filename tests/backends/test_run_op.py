"""Single ops: bodies, old and new opsets, and what onnxruntime refuses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from gecompiler.backends.execution import ort_session
from gecompiler.backends.execution.executor import run_reference
from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.importer import load_onnx
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType, tensor


def run(text, **inputs):
    return run_reference(load_onnx(parser.parse_model(text)), inputs)


def one_op(op_type, inputs, outputs, attrs=None, opset=20, domain=""):
    """The outputs of a graph of one op; ``inputs`` and ``outputs`` by name: array, type."""
    graph = Graph("one", {"": opset, domain: opset if not domain else 1})
    for name, array in inputs.items():
        graph.add_input(name, tensor_of(array))
    types = list(outputs.values())
    graph.add_op(Op("n", op_type, tuple(inputs), tuple(outputs), attrs or {}, domain), types)
    graph.set_outputs(outputs)
    return run_reference(graph, inputs)


def tensor_of(array):
    return TensorType(DType.from_numpy(array.dtype), array.shape)


def test_a_branch_takes_values_from_around_it():
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (bool c, float[2] x, float[2] unused) => (float[2] y) {
      two = Constant <value = float {2.0}> ()
      y = If (c) <
        then_branch = t () => (float[2] a) { a = Mul(x, two) },
        else_branch = e () => (float[2] b) { inner = Add(x, two)
                                             b = Neg(inner) }>
    }"""
    x = np.array([1.0, 2.0], np.float32)
    unused = np.zeros(2, np.float32)
    assert run(text, c=np.array(True), x=x, unused=unused)["y"].tolist() == [2, 4]
    assert run(text, c=np.array(False), x=x, unused=unused)["y"].tolist() == [-3, -4]


def test_a_loop_carries_scans_and_captures():
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (int64 n, float[2] x) => (float[2] last, float[m, 2] every) {
      start = Identity(x)
      last, every = Loop (n, , start) <
        body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] out) {
          on = Identity(go)
          w = Add(v, x)
          out = Identity(w) }>
    }"""
    found = run(text, n=np.array(3), x=np.array([1.0, 10.0], np.float32))
    assert found["last"].tolist() == [4, 40]
    assert found["every"].tolist() == [[2, 20], [3, 30], [4, 40]]


def test_a_loop_that_onnxruntime_refuses_collects_numbers_as_numbers():
    """bfloat16 has no Add there, and ONNX's reference would give three rows of one."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (bfloat16 x) => (bfloat16 last, float[m] every)
    <int64 n = {3}> {
      last, every = Loop (n, , x) <
        body = b (int64 i, bool go, bfloat16 v) => (bool on, bfloat16 w, float out) {
          on = Identity(go)
          w = Add(v, x)
          out = Cast <to = 1> (w) }>
    }"""
    found = run(text, x=np.array(1.5, ml_dtypes.bfloat16))
    assert float(found["last"]) == 6
    assert found["every"].tolist() == [3, 4.5, 6]


def test_a_scan_and_a_body_within_a_body():
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[3] xs, bool c, float k) => (float total, float[3] sums) {
      zero = Constant <value = float {0.0}> ()
      total, sums = Scan <num_scan_inputs = 1,
        body = b (float s, float x) => (float t, float o) {
          add = If (c) <
            then_branch = y () => (float p) { p = Mul(x, k) },
            else_branch = z () => (float q) { q = Identity(x) }>
          t = Add(s, add)
          o = Identity(t) }> (zero, xs)
    }"""
    xs = np.array([1, 2, 3], np.float32)
    found = run(text, xs=xs, c=np.array(True), k=np.float32(10))
    assert found["total"] == 60
    assert found["sums"].tolist() == [10, 30, 60]
    assert run(text, xs=xs, c=np.array(False), k=np.float32(10))["total"] == 6


def test_rotary_tables_are_broadcast_over_the_batch():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 2, 5, 8)).astype(np.float32)
    cos, sin = (rng.normal(size=(1, 5, 4)).astype(np.float32) for _ in range(2))
    kind = {"y": tensor("f32", (3, 2, 5, 8))}
    found = one_op("RotaryEmbedding", {"x": x, "c": cos, "s": sin}, kind, opset=23)["y"]
    left, right = x[..., :4], x[..., 4:]
    c, s = cos[:, None], sin[:, None]
    want = np.concatenate([left * c - right * s, left * s + right * c], axis=-1)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_an_op_that_onnxruntime_lacks_goes_to_the_reference():
    x = np.array([0.0, 1.0, 2.0])
    found = one_op("Swish", {"x": x}, {"y": tensor("f64", (3,))}, {"alpha": 1.0}, opset=24)["y"]
    np.testing.assert_allclose(found, x / (1 + np.exp(-x)), rtol=1e-6)


def test_integers_and_wide_floats_that_onnxruntime_refuses_keep_their_type():
    x = np.array([1, 2, 300], np.uint16)
    found = one_op("Abs", {"x": x}, {"y": tensor("u16", (3,))})["y"]
    assert found.dtype == np.uint16
    assert found.tolist() == [1, 2, 300]


def test_bfloat16_matrix_products_are_summed_in_float32():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(ml_dtypes.bfloat16) for s in ((4, 300), (300, 4)))
    found = one_op("MatMul", {"a": a, "b": b}, {"y": tensor("bf16", (4, 4))})["y"]
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=2**-8, atol=1e-3)


def test_four_bit_weights_are_dequantized():
    x = np.array([-8, -1, 0, 7], ml_dtypes.int4)
    scale = np.float32(0.5)
    inputs = {"x": x, "s": np.asarray(scale)}
    found = one_op("DequantizeLinear", inputs, {"y": tensor("f32", (4,))}, opset=21)["y"]
    assert found.tolist() == [-4, -0.5, 0, 3.5]


def dropout(training, constant):
    graph = Graph("g", {"": 13})
    graph.add_input("x", tensor("f32", (50, 50)))
    graph.add_constant("r", Constant.of(np.array(0.5, np.float32)))
    if constant:
        graph.add_constant("t", Constant.of(np.array(training)))
    else:
        graph.add_input("t", tensor("bool", ()))
    graph.add_op(Op("drop", "Dropout", ("x", "r", "t"), ("y", "m")))
    for name, dtype in (("y", "f32"), ("m", "bool")):
        graph.set_type(name, tensor(dtype, (50, 50)))
    graph.set_outputs(("y", "m"))
    inputs = {"x": np.ones((50, 50), np.float32), "t": np.array(training)}
    return run_reference(graph, {n: inputs[n] for n in graph.inputs})


@pytest.mark.parametrize(("training", "constant"), [(True, True), (False, True), (False, False)])
def test_dropout_changes_nothing_in_inference_nor_by_a_flag_that_was_left_set(training, constant):
    found = dropout(training, constant)
    assert (found["y"] == 1).all()
    assert found["m"].all()


def test_dropout_drops_when_the_run_asks_for_it_the_same_in_every_run():
    found, again = dropout(True, constant=False), dropout(True, constant=False)
    assert set(np.unique(found["y"])) == {0.0, 2.0}
    assert 0.4 < found["m"].mean() < 0.6
    np.testing.assert_array_equal(found["m"], found["y"] != 0)
    np.testing.assert_array_equal(found["y"], again["y"])


def test_resize_with_aligned_corners_goes_by_the_size_before_it_is_rounded():
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 1, 4)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    graph = Graph("g", {"": 19})
    graph.add_input("x", tensor("f32", x.shape))
    graph.add_constant("s", Constant.of(np.array([1, 1, 1, 0.6], np.float32)))
    graph.add_op(Op("r", "Resize", ("x", "", "s"), ("y",), attrs))
    graph.set_type("y", tensor("f32", (1, 1, 1, 2)))
    graph.set_outputs(("y",))
    found = run_reference(graph, {"x": x})["y"].ravel()
    # Position 1 of a length of 4 * 0.6 lies at 1 * (4 - 1) / (4 * 0.6 - 1) of the input.
    np.testing.assert_allclose(found, [1, 1 + 3 / 1.4], rtol=1e-6)


def test_random_ops_without_a_seed_give_the_same_in_every_run():
    x = np.zeros((4, 4), np.float32)
    kind = {"y": tensor("f32", (4, 4))}
    first, second = (one_op("RandomUniformLike", {"x": x}, kind)["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) > 8


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 20])
def test_axes_are_an_attribute_or_an_input_as_the_opset_says(opset):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    late = opset >= 13
    nodes = [
        helper.make_node(
            "Unsqueeze", ["x", *(["a"] if late else [])], ["u"], **({} if late else {"axes": [0]})
        ),
        helper.make_node(
            "Squeeze", ["u", *(["a"] if late else [])], ["v"], **({} if late else {"axes": [0]})
        ),
        helper.make_node("Flatten", ["v"], ["f"], axis=0),
        helper.make_node("Reshape", ["f", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("a", TensorProto.INT64, [1], [0]),
            helper.make_tensor("s", TensorProto.INT64, [2], [3, -1]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    found = run_reference(load_onnx(model), {"x": x})["y"]
    np.testing.assert_array_equal(found, x.reshape(3, 2))


def test_optional_inputs_in_the_middle_may_be_left_out():
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[4] x) => (float[4] y) {
      hi = Constant <value = float {2.0}> ()
      y = Clip(x, , hi)
    }"""
    x = np.array([1, 2, 3, 4], np.float32)
    assert run(text, x=x)["y"].tolist() == [1, 2, 2, 2]


def test_sessions_are_shared_between_sizes_and_told_apart_by_attributes(monkeypatch):
    monkeypatch.setattr(ort_session, "CACHE", ort_session.SessionCache())
    made = []
    original = ort_session._made
    monkeypatch.setattr(ort_session, "_made", lambda *a: made.append(1) or original(*a))
    for size in (2, 3, 4):
        x = np.ones((size, size), np.float32)
        kind = {"y": tensor("f32", x.shape)}
        np.testing.assert_allclose(one_op("Softmax", {"x": x}, kind, {"axis": -1})["y"], 1 / size)
    assert len(made) == 1
    one_op("Softmax", {"x": x}, kind, {"axis": 0})
    one_op("Softmax", {"x": x.astype(np.float64)}, {"y": tensor("f64", x.shape)}, {"axis": 0})
    assert len(made) == 3


def test_what_no_runtime_knows_is_an_error_that_names_the_node():
    x = np.ones(2, np.float32)
    with pytest.raises(ModelError, match=r"node 'n' \(custom\.Foo\)"):
        one_op("Foo", {"x": x}, {"y": tensor("f32", (2,))}, domain="custom")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_standard_attention_op_runs_with_grouped_heads_and_a_cache(dtype):
    rng = np.random.default_rng(2)
    q = rng.normal(size=(2, 4, 3, 8)).astype(dtype)
    k, v = (rng.normal(size=(2, 2, 3, 8)).astype(dtype) for _ in range(2))
    outputs = {"y": tensor_of(q)}
    found = one_op("Attention", {"q": q, "k": k, "v": v}, outputs, {"is_causal": 1}, opset=23)["y"]
    wide = [np.repeat(a.astype(np.float64), 2, axis=1) for a in (k, v)]
    scores = q.astype(np.float64) @ wide[0].swapaxes(2, 3) / np.sqrt(8)
    scores = np.where(np.tri(3, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    want = p / p.sum(axis=-1, keepdims=True) @ wide[1]
    np.testing.assert_allclose(found, want, rtol=1e-2 if dtype == "float16" else 1e-4, atol=2e-3)


def test_a_narrow_type_stays_where_the_graph_states_no_types():
    graph = Graph("untyped", {"": 20})
    x = np.linspace(-2, 2, 9).astype(ml_dtypes.bfloat16)
    graph.add_input("x", tensor_of(x))
    graph.add_op(Op("a", "Mul", ("x", "x"), ("y",)))
    graph.add_op(Op("b", "Softmax", ("y",), ("z",)))
    graph.set_outputs(["y", "z"])
    found = run_reference(graph, {"x": x})
    assert found["y"].dtype == found["z"].dtype == x.dtype


def test_the_scores_of_attention_are_given_out_after_the_mask():
    x = np.ones((1, 1, 2, 4), np.float32)
    graph = Graph("scores", {"": 23})
    for name in "abc":
        graph.add_input(name, tensor_of(x))
    attrs = {"is_causal": 1, "qk_matmul_output_mode": 2}
    op = Op("n", "Attention", ("a", "b", "c"), ("y", "", "", "s"), attrs)
    graph.add_op(op, [tensor_of(x), None, None, tensor("f32", (1, 1, 2, 2))])
    graph.set_outputs(["y", "s"])
    found = run_reference(graph, {"a": x, "b": x, "c": x})
    np.testing.assert_allclose(found["s"][0, 0], [[2, -np.inf], [2, 2]], rtol=1e-6)


def test_gathering_strings_takes_whole_rows():
    """onnxruntime 1.32 hands out the first of each row, and leaves the rest empty."""
    x = np.array([["a", "b"], ["c", "d"], ["e", "f"]], dtype=object)
    inputs = {"x": x, "i": np.array([2, 0])}
    found = one_op("Gather", inputs, {"y": tensor("string", (2, 2))}, {"axis": 0})["y"]
    assert found.tolist() == [["e", "f"], ["a", "b"]]
