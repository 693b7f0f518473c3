"""What a run may take of the host: a small file that asks for gigabytes is refused in time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from gecompiler.backends.execution import host_memory, loop_limit
from gecompiler.backends.execution.executor import run_reference
from gecompiler.backends.execution.host_memory import (
    FLOOR,
    HostMemory,
    HostMemoryError,
    bounded,
    value_bytes,
)
from gecompiler.backends.execution.predicted import predicted
from gecompiler.backends.execution.work import work_of
from gecompiler.compiled import CompiledModel
from gecompiler.ir import Graph, Op, load_onnx, parse
from gecompiler.ir.errors import GecError
from gecompiler.ir.types import DType
from gecompiler.option_table import Options
from gecompiler.request import Request

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def model(body: str) -> bytes:
    return bytes(parser.parse_model(f"{HEAD} {body}").SerializeToString())


def ways(text: str) -> list[Callable[[dict[str, np.ndarray]], object]]:
    """Op after op, and compiled, of a model."""
    graph = load_onnx(model(text))
    return [
        lambda x: run_reference(graph, x),
        lambda x: CompiledModel.compile(Request(load_onnx(model(text)), arrays=x)).run(x),
    ]


GREEDY = {
    "padding": """g (float[n] x) => (float[m] y) {
        p = Constant<value_ints = [0, 600000000]>()  y = Pad(x, p) }""",
    "padding by an input": "g (float[n] x, int64[2] p) => (float[m] y) { y = Pad(x, p) }",
    "outer product": """g (float[n] x) => (float[n, n, n] y) {
        a = Constant<value_ints = [1, 2]>()  b = Constant<value_ints = [0, 2]>()
        c = Constant<value_ints = [0, 1]>()  u = Unsqueeze(x, a)  v = Unsqueeze(x, b)
        w = Unsqueeze(x, c)  s = Add(u, v)  y = Add(s, w) }""",
    "repetition": """g (float[n] x) => (float[m] y) {
        r = Constant<value_ints = [9999999]>()  y = Tile(x, r) }""",
    "a range to an input": """g (int64 n) => (int64[m] y) {
        z = Constant<value_int = 0>()  o = Constant<value_int = 1>()  y = Range(z, n, o) }""",
}
INPUTS = {
    "padding": {"x": np.ones(8, np.float32)},
    "padding by an input": {"x": np.ones(8, np.float32), "p": np.array([0, 600000000])},
    "outer product": {"x": np.ones(2000, np.float32)},
    "repetition": {"x": np.ones(100, np.float32)},
    "a range to an input": {"n": np.array(900000000)},
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_small_file_that_asks_for_gigabytes_is_refused_before_they_are_taken(name: str) -> None:
    for run in ways(GREEDY[name]):
        tracemalloc.start()
        try:
            with pytest.raises(HostMemoryError, match=r"host's memory, more than the") as caught:
                run(INPUTS[name])
            assert tracemalloc.get_traced_memory()[1] < 2**26
        finally:
            tracemalloc.stop()
        assert "node '" in caught.value.where
        assert "--host-memory " in caught.value.hint


def test_what_is_allowed_is_run() -> None:
    text = """g (float[n] x) => (float[m] y) {
        p = Constant<value_ints = [0, 2000000]>()  y = Pad(x, p) }"""
    x = {"x": np.ones(8, np.float32)}
    tight = Options({"host_memory": "1MiB"})
    with pytest.raises(HostMemoryError, match=r"'y' f32\[2000008\]|node '"):
        CompiledModel.compile(Request(load_onnx(model(text)), arrays=x, options=tight)).run(x)
    for options in (Options(), Options({"host_memory": "100MiB"})):
        request = Request(load_onnx(model(text)), arrays=x, options=options)
        assert CompiledModel.compile(request).run(x)["y"].sum() == 8


def test_arithmetic_is_bounded_too() -> None:
    graph = parse(
        """graph @g (opset 17) {
          input %x: f32[4]
          const %n: i64[2] = [4096, 4096]
          %a: f32[4096, 4096] = ConstantOfShape(%n)
          %b: f32[4096, 4096] = MatMul(%a, %a)
          %c: f32[4096, 4096] = MatMul(%b, %b)
          %d: f32[4096, 4096] = MatMul(%c, %c)
          %e: f32[4096, 4096] = MatMul(%d, %d)
          return %e
        }"""
    )
    with pytest.raises(HostMemoryError, match="multiply-adds") as caught:
        run_reference(graph, {"x": np.ones(4, np.float32)})
    assert "MatMul" in caught.value.where


def test_rounds_of_a_loop_count() -> None:
    text = """g (float[2] x) => (float[2] y) <int64 n = {90000}, bool go = {1}> {
        y = Loop<body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
        s = Constant<value_ints = [300, 300]>()  k = ConstantOfShape(s)  p = MatMul(k, k)
        t = Constant<value_ints = [0, 0]>()  e = Constant<value_ints = [1, 2]>()
        q = Slice(p, t, e)  r = Constant<value_ints = [2]>()  f = Reshape(q, r)
        d = Identity(c)  w = Add(v, f) }>(n, go, x) }"""
    graph = load_onnx(model(text))
    from gecompiler.ir import infer_types

    infer_types(graph)
    with pytest.raises(HostMemoryError, match="multiply-adds"):
        run_reference(graph, {"x": np.ones(2, np.float32)})


def test_a_body_that_doubles_what_it_has_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_limit, "BYTES", 2**27)
    text = """g (float[a] x) => (float[z] y) <int64 n = {40}, bool go = {1}> {
        y = Loop<body = b (int64 i, bool c, float[q] v) => (bool d, float[r] w) {
        d = Identity(c)  w = Concat<axis = 0>(v, v) }>(n, go, x) }"""
    with bounded(HostMemory.of(2**27, 0, ())), pytest.raises(GecError):
        run_reference(load_onnx(model(text)), {"x": np.ones(8, np.float32)})


@given(st.integers(0, 10**9), st.lists(st.integers(1, 200), max_size=3))
def test_bounds_grow_with_weights_and_inputs(weights: int, sizes: list[int]) -> None:
    inputs = [np.zeros(n, np.int64) for n in sizes]
    less = HostMemory.of(None, weights, inputs)
    more = HostMemory.of(None, 2 * weights + 1, [*inputs, np.zeros(7, np.float32)])
    assert FLOOR <= less.limit <= more.limit
    assert less.work_limit <= more.work_limit
    assert less.limit <= FLOOR + 16 * weights + 4096 * 8 * sum(sizes) + 64 * sum(sizes) ** 2
    assert HostMemory.of(12345, weights, inputs).limit == 12345


def test_long_sequences_have_what_unfused_attention_takes() -> None:
    tokens = 4096
    bounds = HostMemory.of(None, 10**5, [np.zeros((1, tokens), np.int64)] * 2)
    assert bounds.limit > 3 * 4 * tokens**2 * 4  # three tensors of scores of four heads


def test_within_a_run_the_outer_bounds_hold() -> None:
    with bounded(HostMemory.of(1000, 0, ())) as outer:
        with bounded(HostMemory.of(10**9, 0, ())) as inner:
            assert inner is outer
        assert host_memory.current() is outer
    assert host_memory.current() is None


def test_what_a_view_of_one_element_takes() -> None:
    assert value_bytes(np.broadcast_to(np.float32(1), (1000, 1000))) == 0
    assert value_bytes([np.zeros(4, np.float32), None]) == 16


def test_sizes_are_told_from_the_values_that_ask_for_them() -> None:
    graph = Graph("g", {"": 17})
    op = Op("p", "Pad", ("x", "pads"), ("y",))
    (found,) = predicted(graph, op, [np.ones(3, np.float32), np.array([1, 2**40])])
    assert str(found) == f"f32[{4 + 2**40}]"
    (found,) = predicted(graph, Op("n", "NonZero", ("x",), ("y",)), [np.ones(9000, np.float32)])
    assert found is None or not found.is_static  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("op", "inputs", "output", "products"),
    [
        (Op("a", "MatMul", ("x", "w"), ("y",)), [(3, 5), (5, 7)], (3, 7), 105),
        (Op("a", "Gemm", ("x", "w"), ("y",), {"transA": 1}), [(5, 3), (5, 7)], (3, 7), 105),
        (Op("a", "Conv", ("x", "w"), ("y",)), [(1, 4, 9, 9), (6, 4, 3, 3)], (1, 6, 7, 7), 10584),
        (Op("a", "ConvTranspose", ("x", "w"), ("y",)), [(1, 4, 5), (4, 6, 3)], (1, 6, 7), 360),
        (Op("a", "MaxPool", ("x",), ("y",), {"kernel_shape": (3, 3)}), [(1, 2, 9, 9)],
         (1, 2, 7, 7), 882),
        (Op("a", "Einsum", ("x", "w"), ("y",), {"equation": "bij,bjk->bik"}),
         [(2, 3, 4), (2, 4, 5)], (2, 3, 5), 120),
        (Op("a", "Relu", ("x",), ("y",)), [(10,)], (10,), 0),
    ],
    ids=lambda value: value.op_type if isinstance(value, Op) else "",
)  # fmt: skip
def test_multiply_adds(op: Op, inputs: list, output: tuple, products: int) -> None:
    moved = sum(int(np.prod(s)) for s in (*inputs, output))
    assert work_of(op, inputs, [output]) == products + 40 * moved


def test_narrow_elements_are_packed() -> None:
    assert HostMemory.of(None, 0, [np.zeros(4, DType.BF16.numpy)]).held_by_file == 8
