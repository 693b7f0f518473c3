"""Folding: what it computes, by onnxruntime; what it must not; how much memory it takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting_help import assert_same_bits, kinds, rewritten, run

from gecompiler.ir import Constant, Graph, ModelError, parse, tensor
from gecompiler.ir.types import DType
from gecompiler.passes.canonical.constant_folding import RULES, ConstantFolding
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.pass_base import PassContext
from gecompiler.passes.rewriting import Rewriter

FOLDING = ConstantFolding()


def folded(text: str) -> Graph:
    return rewritten(text, FOLDING)


def on_constants(line: str, arrays: dict[str, Any], opset: int = 18) -> Graph:
    """A graph in which one op reads constants, and its result is copied out."""
    graph = parse(f"graph @g (opset {opset}) {{ input %_x: f32[1] return %_x }}")
    for name, array in arrays.items():
        graph.add_constant(name, Constant.of(array))
    body = parse(
        f"graph @g (opset {opset}) {{ "
        + " ".join(f"input %{n}: {graph.type(n)}" for n in arrays)
        + f" %y = {line} return %y }}"
    )
    graph.add_op(body.op("y"))
    graph.set_outputs(["y"])
    return graph


def agrees_with_onnxruntime(line: str, arrays: dict[str, Any], opset: int = 18) -> None:
    graph = on_constants(line, arrays, opset)
    before = run(graph, {"_x": np.zeros(1, np.float32)})
    assert FOLDING.run(graph, PassContext()) > 0, "not folded"
    (op,) = graph.ops
    assert op.op_type == "Identity"
    found = graph.constants[op.inputs[0]].array()
    rounded = line.startswith(("Cos", "Sin", "Exp(", "Log(", "Tanh", "Pow"))
    rtol = 3e-7 if rounded else 0.0
    assert_same_bits(before, {"y": found}, rtol)


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, 0.5, np.inf, -np.inf, np.nan, 3.0, 1e-30], np.float32)
INTS = np.array([-7, -3, -1, 0, 1, 2, 5, 7], np.int64)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_floats(op: str) -> None:
    agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": SPECIAL[:, None], "b": SPECIAL})


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_extremes_where_they_have_one_meaning(op: str) -> None:
    plain = np.array([1.5, -2.5, np.inf, -np.inf], np.float32)
    agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": plain[:, None], "b": plain})
    for odd in (np.nan, 0.0):
        graph = on_constants(f"{op}(%a, %b)", {"a": plain, "b": np.float32(odd)})
        assert FOLDING.run(graph, PassContext()) == 0


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(op: str) -> None:
    agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": SPECIAL[:, None], "b": SPECIAL})


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(op: str, dtype: type) -> None:
    ends = np.iinfo(dtype)
    values = np.array([*INTS, ends.min, ends.max], dtype)
    agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": values[:, None], "b": values})


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_division_truncates_and_modulo_does_not(dtype: type) -> None:
    a, b = INTS.astype(dtype)[:, None], INTS[INTS != 0].astype(dtype)
    agrees_with_onnxruntime("Div(%a, %b)", {"a": a, "b": b})
    agrees_with_onnxruntime("Mod(%a, %b)", {"a": a, "b": b})
    agrees_with_onnxruntime("Mod(%a, %b) {fmod = 1}", {"a": a, "b": b})


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_is_divided_toward_zero(kind: Any) -> None:
    least = np.iinfo(kind).min
    a, b = np.array([least, least, least, -7, 7], kind), np.array([7, -7, 2, 2, -2], kind)
    agrees_with_onnxruntime("Div(%a, %b)", {"a": a, "b": b})


def test_the_sign_of_nan_is_left_to_the_runtime() -> None:
    agrees_with_onnxruntime("Sign(%a)", {"a": np.array([-0.0, 0.0, -np.inf, 1e-40], np.float32)})
    graph = on_constants("Sign(%a)", {"a": np.array([1.0, np.nan], np.float16)})
    assert FOLDING.run(graph, PassContext()) == 0


@pytest.mark.parametrize("line", ["Div(%a, %b)", "Mod(%a, %b)"])
def test_division_by_zero_is_left_to_whoever_runs_it(line: str) -> None:
    graph = on_constants(line, {"a": INTS, "b": np.zeros(1, np.int64)})
    assert FOLDING.run(graph, PassContext()) == 0


@pytest.mark.parametrize(
    "op",
    ["Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Cos",
     "Sin", "Tanh", "IsNaN"],
)  # fmt: skip
def test_functions(op: str) -> None:
    values = SPECIAL[np.isfinite(SPECIAL)] if op in ("Cos", "Sin", "Sign") else SPECIAL
    agrees_with_onnxruntime(f"{op}(%a)", {"a": values})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    values = np.array([True, False])
    agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": values[:, None], "b": values})


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (np.array([1.5, -1.5, 0.0, -0.0, 2.0], np.float32), 6),
        (np.array([1.5, -1.5, 0.0, np.nan, 2.0], np.float32), 9),
        (SPECIAL, 11),
        (SPECIAL, 10),
        (SPECIAL, 16),
        (INTS, 1),
        (INTS, 6),
        (INTS, 9),
        (np.array([True, False]), 1),
        (np.array([True, False]), 7),
        (np.array([1.0, 65519.0, 65520.0, 1e-8], np.float32), 10),
    ],
)
def test_casts(source: Any, code: int) -> None:
    graph = on_constants(f"Cast(%a) {{to = {code}}}", {"a": source})
    if code == 16:  # numpy cannot hold what onnxruntime would return
        assert FOLDING.run(graph, PassContext()) == 1
        return
    agrees_with_onnxruntime(f"Cast(%a) {{to = {code}}}", {"a": source})


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (np.array([1e10], np.float32), 6),
        (np.array([np.nan], np.float32), 7),
        (np.array([-1.0], np.float32), 2),
        (np.array([1.0], np.float64), 10),
        (np.array(["1"], object), 1),
        (np.array([3], np.int64), 8),
    ],
)
def test_casts_that_are_not_the_same_everywhere_stay(source: Any, code: int) -> None:
    graph = on_constants(f"Cast(%a) {{to = {code}}}", {"a": source})
    assert FOLDING.run(graph, PassContext()) == 0


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("line", "arrays"),
    [
        ("Reshape(%x, %t)", {"t": i64(0, -1, 2)}),
        ("Flatten(%x) {axis = -1}", {}),
        ("Transpose(%x)", {}),
        ("Transpose(%x) {perm = [1, 2, 0]}", {}),
        ("Unsqueeze(%x, %t)", {"t": i64(-1, 0)}),
        ("Squeeze(%x)", {}),
        ("Concat(%x, %x) {axis = -1}", {}),
        ("Expand(%x, %t)", {"t": i64(2, 1, 3, 1)}),
        ("Tile(%x, %t)", {"t": i64(2, 1, 3)}),
        ("Gather(%x, %t) {axis = 1}", {"t": i64(2, -1, 0)}),
        ("GatherElements(%x, %t) {axis = 2}", {"t": np.array([[[3, -1]]])}),
        ("GatherND(%x, %t)", {"t": np.array([[0, 1], [-1, -2]])}),
        (
            "OneHot(%t, %d, %v) {axis = 1}",
            {"t": np.array([[0, -1, 5], [2, 1, -9]]), "d": i64(3), "v": i64(2, 7)},
        ),
        ("Slice(%x, %s, %e, %a, %p)", {"s": i64(-1), "e": i64(-9), "a": i64(2), "p": i64(-2)}),
        ("Slice(%x, %s, %e, %a)", {"s": i64(1, 0), "e": i64(2**63 - 1, 2), "a": i64(-1, 0)}),
        ("Trilu(%x, %k)", {"k": np.array(1)}),
        ("Trilu(%x) {upper = 0}", {}),
        ("Where(%c, %x, %d)", {"c": X > 5, "d": np.float32(-1)}),
        ("Shape(%x) {start = 1}", {}),
        ("Size(%x)", {}),
        ("Split(%x) {axis = 2, num_outputs = 1}", {}),
    ],
)
def test_moves(line: str, arrays: dict[str, Any]) -> None:
    agrees_with_onnxruntime(line, {"x": X, **arrays})


@pytest.mark.parametrize(
    ("line", "arrays"),
    [
        ("Range(%a, %b, %c)", {"a": np.int64(3), "b": np.int64(-4), "c": np.int64(-2)}),
        ("Range(%a, %b, %c)", {"a": np.float32(0), "b": np.float32(5), "c": np.float32(1)}),
        ("ConstantOfShape(%a) {value = i64[1] [7]}", {"a": i64(2, 3)}),
        ("ConstantOfShape(%a)", {"a": i64(2, 0)}),
        ("CumSum(%a, %b)", {"a": INTS, "b": np.array(0)}),
        ("ReduceSum(%a, %b) {keepdims = 0}", {"a": INTS[:, None], "b": i64(0)}),
        ("ReduceMax(%a)", {"a": INTS}),
        ("Pow(%a, %b)", {"a": SPECIAL, "b": np.float32(3)}),
        ("Pow(%a, %b)", {"a": INTS, "b": np.int64(3)}),
        ("MatMul(%a, %b)", {"a": SPECIAL[2:5, None], "b": SPECIAL[None, 2:4]}),
    ],
)
def test_makers(line: str, arrays: dict[str, Any]) -> None:
    agrees_with_onnxruntime(line, arrays)


@pytest.mark.parametrize(
    "line",
    [
        "RandomNormal() {shape = [2]}",
        "RandomUniformLike(%x)",
        "MatMul(%x, %x)",  # the order of a sum is the runtime's affair
        "Softmax(%x)",
        "ReduceSum(%x)",
        "unknown.Thing(%x)",
    ],
)
def test_left_alone(line: str) -> None:
    graph = on_constants(line, {"x": np.ones((2, 2), np.float32)})
    assert FOLDING.run(graph, PassContext()) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_index_is_taken_or_refused(data: st.DataObject) -> None:
    """Indices out of range are no business of folding; those in range give what numpy gives."""
    size = data.draw(st.integers(1, 4))
    index = data.draw(st.lists(st.integers(-6, 6), max_size=4))
    x = np.arange(size * 3).reshape(size, 3)
    graph = on_constants("Gather(%x, %i)", {"x": x, "i": np.array(index, np.int64)})
    if all(-size <= i < size for i in index):
        assert FOLDING.run(graph, PassContext()) == 1
        made = graph.constants[graph.ops[0].inputs[0]].array()
        assert np.array_equal(made, x[np.array(index, np.int64)])
    else:
        with pytest.raises(ModelError):
            FOLDING.run(graph, PassContext())


def test_a_range_beyond_the_bound_is_not_made() -> None:
    text = """graph @g (opset 18) {
      const %a: i64[] = 0
      const %b: i64[] = 1000
      const %c: i64[] = 1
      const %t: i64[2] = [1000, 1]
      %r = Range(%a, %b, %c)
      %y = Expand(%r, %t)
      return %y
    }"""
    assert kinds(rewritten(text, ConstantFolding(max_elements=999))) == {"Range": 1, "Expand": 1}
    assert kinds(rewritten(text, ConstantFolding(max_elements=1000))) == {"Expand": 1}
    assert kinds(rewritten(text, ConstantFolding(max_elements=10**6))) == {"Identity": 1}


def test_all_constants_together_stay_within_the_budget() -> None:
    lines = ["graph @g (opset 18) {", "const %a: i64[] = 0", "const %c: i64[] = 1"]
    for i in range(50):
        lines += [f"const %b{i}: i64[] = {1000 + i}", f"%r{i} = Range(%a, %b{i}, %c)"]
        lines += [f"%n{i} = Neg(%r{i})"]
    lines += [f"return {', '.join(f'%n{i}' for i in range(50))}", "}"]
    graph = parse("\n".join(lines))
    ConstantFolding(max_bytes=100_000).run(graph, PassContext())
    assert sum(c.array().nbytes for c in graph.constants.values() if c.data is not None) < 102_000


def test_a_shape_that_lies_takes_no_memory() -> None:
    """Should a type ever be wrong, the kernels that make large results look for themselves."""
    many, one = np.int64(2**40), np.int64(1)
    for line, arrays in (
        ("ConstantOfShape(%a)", {"a": i64(2**20, 2**20)}),
        ("Expand(%a, %b)", {"a": i64(1), "b": i64(2**40)}),
        ("Tile(%a, %b)", {"a": i64(1), "b": i64(2**40)}),
        ("Range(%a, %b, %c)", {"a": np.int64(0), "b": many, "c": one}),
        ("Range(%a, %b, %c)", {"a": np.int32(0), "b": np.int32(2**30), "c": np.int32(1)}),
        ("Add(%a, %b)", {"a": np.zeros((2**17, 1)), "b": np.zeros((1, 2**17))}),
        ("Gather(%a, %b)", {"a": np.zeros((1, 2**20)), "b": np.zeros(2**20, np.int64)}),
    ):
        graph = on_constants(line, arrays)
        graph.set_type("y", tensor(graph.type("a").dtype.short, (2,)))
        assert Rewriter(graph, ValueFacts(graph)).run(RULES) == 0


def test_a_big_weight_is_transposed_once_and_not_kept_twice() -> None:
    weight = np.zeros((1100, 1000), np.float32)
    sole = on_constants("Transpose(%w)", {"w": weight})
    assert FOLDING.run(sole, PassContext()) == 1
    made = sole.constants[sole.ops[0].inputs[0]].array()
    assert np.shares_memory(made, weight)
    assert set(sole.constants) == {sole.ops[0].inputs[0]}

    shared = on_constants("Transpose(%w)", {"w": weight})
    shared.emit("Neg", ["w"], shared.type("w"))
    assert FOLDING.run(shared, PassContext()) == 0


def test_half_precision_rounds_once_per_op() -> None:
    values = np.array([2048.0, 1.0, 0.1, 65504.0], np.float16)
    for op in ("Add", "Mul", "Div"):
        agrees_with_onnxruntime(f"{op}(%a, %b)", {"a": values[:, None], "b": values})


def test_constant_ops_become_constants() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2]
      %a = Constant() {value_floats = [1.5, 2.5]}
      %b = Constant() {value_float = 3.5}
      %c = Constant() {value = f32[2] [0.5, 0.25]}
      %d = Add(%x, %a)
      %e = Add(%d, %b)
      %y = Add(%e, %c)
      return %y
    }"""
    graph = folded(text)
    assert kinds(graph) == {"Add": 3}
    assert all(c.type.dtype is DType.F32 for c in graph.constants.values())


def test_an_empty_reduction_is_left_alone() -> None:
    graph = on_constants("ReduceMax(%a)", {"a": np.zeros((0,), np.int64)})
    FOLDING.run(graph, PassContext())
    assert kinds(graph) == {"ReduceMax": 1}


def test_folding_a_long_chain_is_linear() -> None:
    lines = ["graph @g (opset 18) {", "const %v0: i64[] = 0", "const %one: i64[] = 1"]
    lines += [f"%v{i + 1} = Add(%v{i}, %one)" for i in range(2000)]
    graph = folded("\n".join([*lines, "return %v2000", "}"]))
    assert kinds(graph) == {"Identity": 1}
    assert graph.constants[graph.ops[0].inputs[0]].scalar() == 2000
    assert math.prod(graph.constants[graph.ops[0].inputs[0]].type.sizes) == 1
