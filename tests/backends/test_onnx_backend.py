"""The standard interface, over the whole way of the product."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from gecompiler.backends import compiler_slot, onnx_backend
from gecompiler.ir.errors import ModelError, UsageError

X = np.array([-1, 2], np.float32)


def model(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


ADD = "g (float[2] x, float[2] y) => (float[2] z) { z = Add(x, y) }"


def test_it_is_a_backend_of_onnx():
    assert issubclass(onnx_backend.NpuBackend, onnx.backend.base.Backend)
    rep = onnx_backend.prepare(model(ADD))
    assert isinstance(rep, onnx.backend.base.BackendRep)
    found = rep.run([X, X])
    np.testing.assert_array_equal(found[0], X + X)
    np.testing.assert_array_equal(found["z"], X + X)
    np.testing.assert_array_equal(rep.run({"y": X, "x": 2 * X}).z, 3 * X)


@pytest.mark.parametrize("device", ["CPU", "NPU", "NPU:0", "ascend310p", "h100"])
def test_devices(device):
    assert onnx_backend.supports_device(device)
    assert onnx_backend.is_compatible(model(ADD), device)
    found = onnx_backend.run_model(model(ADD), [X, X], device, num_streams=2)
    np.testing.assert_array_equal(found[0], X + X)


def test_a_device_or_option_that_is_unknown():
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="CUDA"):
        onnx_backend.prepare(model(ADD), "CUDA")
    with pytest.raises(UsageError, match="num_streams"):
        onnx_backend.prepare(model(ADD), num_stream=2)


def test_a_model_that_is_not_valid_is_refused_when_it_is_prepared():
    with pytest.raises(ModelError, match="not known"):
        onnx_backend.prepare(model("g (float[2] x) => (float[2] y) { y = Florr(x) }"))


def test_values_that_do_not_fit():
    rep = onnx_backend.prepare(model(ADD))
    with pytest.raises(UsageError, match="1 values for 2 inputs"):
        rep.run([X])
    with pytest.raises(UsageError, match="expected element type"):
        rep.run([X, X.astype(np.float64)])


def test_sizes_may_differ_from_run_to_run():
    rep = onnx_backend.prepare(model("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }"))
    for shape in ((2, 3), (0, 3), (1, 1), (2, 0), (5, 2)):
        assert rep.run([np.ones(shape, np.float32)])[0].shape == shape


def test_a_value_may_replace_a_default():
    proto = model(ADD)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(5 * X, "y"))
    rep = onnx_backend.prepare(proto)
    for values, wanted in (([X], 6 * X), ([X, X], 2 * X), ({"x": X, "y": 0 * X}, X), ([X], 6 * X)):
        np.testing.assert_array_equal(rep.run(values)[0], wanted)


@pytest.mark.parametrize("inputs", [[X], X, {"a": X}, [onnx.numpy_helper.from_array(X)]])
def test_one_node(inputs):
    node = helper.make_node("Relu", ["a"], ["b"])
    np.testing.assert_array_equal(onnx_backend.run_node(node, inputs).b, [0, 2])
    info = [(np.dtype(np.float32), (2,))]
    np.testing.assert_array_equal(onnx_backend.run_node(node, inputs, outputs_info=info)[0], [0, 2])


def test_one_node_with_an_input_left_out_of_another_domain_of_sequences_and_of_old():
    clip = helper.make_node("Clip", ["a", "", "most"], ["b"])
    np.testing.assert_array_equal(onnx_backend.run_node(clip, [X, np.float32(1)])[0], [-1, 1])
    binary = helper.make_node("Binarizer", ["a"], ["b"], domain="ai.onnx.ml", threshold=1.0)
    np.testing.assert_array_equal(onnx_backend.run_node(binary, [X])[0], [0, 1])
    at = helper.make_node("SequenceAt", ["s", "i"], ["b"])
    np.testing.assert_array_equal(onnx_backend.run_node(at, [[X, X + 1], np.int64(1)])[0], X + 1)
    add = helper.make_node("Add", ["a", "b"], ["c"], broadcast=1, axis=0)
    found = onnx_backend.run_node(add, [np.zeros((2, 3), np.float32), X], opset_version=6)
    np.testing.assert_array_equal(found[0], [[-1] * 3, [2] * 3])
    with pytest.raises(UsageError, match="1 values for 2 inputs"):
        onnx_backend.run_node(add, [X], opset_version=6)


def test_without_a_front_door_the_slot_says_so(monkeypatch):
    monkeypatch.setattr(compiler_slot, "_loaders", [])
    with pytest.raises(UsageError, match="import gecompiler"):
        onnx_backend.prepare(model(ADD))
