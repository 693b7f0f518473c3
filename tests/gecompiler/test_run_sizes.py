"""Sizes that only a run can tell: never taken for facts, whatever was planned for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import gecompiler as ge


def compiled(text, **options):
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    session = ge.Session(**options)
    return session.compile(proto)


NON_ZERO = """g (float[n, m] x) => (int64[2, k] i, int64[2] s, float[k, m] rows, int64 count) {
  i = NonZero(x)
  t = Transpose(i)
  s = Shape(t)
  count = Size(t)
  first = Constant<value = int64 {0}>()
  at = Gather<axis = 0>(i, first)
  rows = Gather<axis = 0>(x, at)
}"""


@pytest.mark.parametrize("options", [{}, {"num_streams": 4, "stream_strategy": "load_balance"}])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sizes_of_what_a_run_finds(options, share):
    model = compiled(NON_ZERO, **options)
    for shape in ((3, 4), (1, 1), (6, 2)):
        x = (np.random.default_rng(0).random(shape) < share).astype(np.float32)
        found = model.run({"x": x})
        wanted = np.array(np.nonzero(x))
        np.testing.assert_array_equal(found["i"], wanted)
        np.testing.assert_array_equal(found["s"], wanted.T.shape)
        np.testing.assert_array_equal(found["rows"], x[wanted[0]])
        assert found["count"] == wanted.size


RANGE = """g (int64 n) => (int64[k] y, int64[1] s) {
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  r = Range(zero, n, one)
  y = Neg(r)
  s = Shape(y)
}"""


def test_more_than_was_planned_for():
    model = compiled(RANGE)
    for n in (5, 0, 128, 4000, 3):
        found = model.run({"n": np.int64(n)})
        np.testing.assert_array_equal(found["y"], -np.arange(n))
        assert found["s"] == [n]


RESHAPE = """g (float[4, 5] x, int64[2] s) => (float[a, b] z, float[b, a] w) {
  r = Reshape(x, s)
  z = Neg(r)
  w = Transpose(z)
}"""


def test_a_view_whose_sizes_come_with_the_run():
    model = compiled(RESHAPE)
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for sizes in ((4, 5), (5, 4), (1, 20), (-1, 10)):
        found = model.run({"x": x, "s": np.array(sizes)})
        np.testing.assert_array_equal(found["z"], -x.reshape(sizes))
        np.testing.assert_array_equal(found["w"], -x.reshape(sizes).T)


UNKNOWN_RANK = """g (float[6] x, int64[r] s) => (float[p] y, int64[q] t) {
  v = Reshape(x, s)
  w = Squeeze(v)
  t = Shape(w)
  y = Relu(w)
}"""


def test_a_rank_that_only_a_run_can_tell_is_observed():
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{UNKNOWN_RANK}')
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    from gecompiler.backends import onnx_backend

    rep = onnx_backend.prepare(proto)
    x = np.arange(6, dtype=np.float32)
    for sizes, wanted in (((2, 3), (2, 3)), ((1, 6), (6,)), ((2, 1, 3), (2, 3)), ((6,), (6,))):
        y, t = rep.run([x, np.array(sizes)])
        assert y.shape == wanted
        assert tuple(t) == wanted


MEAN = """g (float[n, m] x) => (float[n, m] y, float[m] total, int64[2] s) {
  y = Relu(x)
  axes = Constant<value = int64[1] {0}>()
  total = ReduceSum<keepdims = 0>(y, axes)
  s = Shape(x)
}"""


def test_inputs_without_elements():
    model = compiled(MEAN)
    for shape in ((0, 3), (2, 0), (0, 0), (2, 3)):
        found = model.run({"x": np.ones(shape, np.float32)})
        assert found["y"].shape == shape
        np.testing.assert_array_equal(found["total"], [shape[0]] * shape[1])
        assert tuple(found["s"]) == shape


def test_what_is_planned_is_said_to_be_an_estimate():
    model = compiled(RANGE)
    told = [w.code for w in model.compilation.diagnostics]
    assert "data-dependent-size" in told
    marked = [op.op_type for op in model.graph.ops if op.info.data_sized]
    assert "Range" in marked
