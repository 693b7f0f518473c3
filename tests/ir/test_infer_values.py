"""Contents of small tensors: what is followed, exactly, and what is not."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from gecompiler.ir import ModelError, infer_types, parse
from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import substitute, symbol
from gecompiler.ir.infer.arrays import SymbolicArray, contents, fits
from gecompiler.ir.types import DType


def known(body: str, output: str = "y", opset: int = 20) -> str:
    """The contents of a value, as text; "" where nothing is known."""
    lines = "\n".join(line.strip() for line in body.strip().splitlines())
    graph = parse(f"graph (opset {opset}) {{\n{lines}\nreturn %{output}\n}}")
    found = infer_types(graph).values.get(output)
    return "" if found is None else str(found)


SHAPE = "input %x: f32[b, s, 32]\n%n = Shape(%x)\n"

FOLLOWED = [
    ("%y = Identity(%n)", "[b, s, 32]"),
    ("%y = Shape(%x) {start = 1, end = -1}", "[s]"),
    ("%y = Size(%x)", "32*b*s"),
    ("const %i: i64[] = 1\n%y = Gather(%n, %i)", "s"),
    ("const %i: i64[2] = [-1, 0]\n%y = Gather(%n, %i)", "[32, b]"),
    ("const %a: i64[1] = [0]\nconst %e: i64[1] = [2]\n%y = Slice(%n, %a, %e)", "[b, s]"),
    ("const %a: i64[1] = [-1]\nconst %e: i64[1] = [-9223372036854775807]\n"
     "const %z: i64[1] = [0]\nconst %k: i64[1] = [-1]\n%y = Slice(%n, %a, %e, %z, %k)",
     "[32, s, b]"),
    ("const %k: i64[1] = [-1]\n%y = Concat(%n, %k) {axis = 0}", "[b, s, 32, -1]"),
    ("const %z: i64[1] = [0]\nconst %i: i64[] = 1\n%g = Gather(%n, %i)\n%y = Unsqueeze(%g, %z)",
     "[s]"),
    ("const %i: i64[1] = [1]\n%g = Gather(%n, %i)\n%y = Squeeze(%g)", "s"),
    ("const %t: i64[2] = [3, 1]\n%y = Reshape(%n, %t)", "[b, s, 32]"),
    ("%y = Cast(%n) {to = 6}", "[b, s, 32]"),
    ("%f = Cast(%n) {to = 1}\n%y = Cast(%f) {to = 7}", "[b, s, 32]"),
    ("%f = Cast(%n) {to = 1}\n%r = Sqrt(%f)\n%y = Cast(%r) {to = 7}", ""),
    ("%f = Cast(%n) {to = 10}\n%y = Cast(%f) {to = 7}", "[?, ?, 32]"),
    ("const %k: i64[] = 4\n%y = Div(%n, %k)", "[floordiv(b, 4), floordiv(s, 4), 8]"),
    ("const %k: i64[] = 4\n%y = Mul(%n, %k)", "[4*b, 4*s, 128]"),
    ("const %k: i64[] = 1\n%y = Add(%n, %k)", "[b + 1, s + 1, 33]"),
    ("const %k: i64[] = 1\n%m = Sub(%n, %k)\n%y = Neg(%m)", "[-b + 1, -s + 1, -31]"),
    ("const %k: i64[] = 5\n%y = Mod(%n, %k)", "[mod(b, 5), mod(s, 5), 2]"),
    ("const %k: i64[] = 64\n%y = Min(%n, %k)", "[min(b, 64), min(s, 64), 32]"),
    ("const %k: i64[] = 0\n%y = Max(%n, %k)", "[b, s, 32]"),
    ("const %k: i64[] = 0\n%y = Mul(%n, %k)", "[0, 0, 0]"),
    ("const %k: i64[3] = [-1, 5, 32]\n%y = Equal(%n, %k)", "[0, ?, 1]"),
    ("const %k: i64[] = 0\n%y = Less(%n, %k)", "[0, 0, 0]"),
    ("const %k: i64[] = 0\n%y = GreaterOrEqual(%n, %k)", "[1, 1, 1]"),
    ("const %k: i64[] = 0\n%y = Greater(%n, %k)", "[?, ?, 1]"),
    # Expand's own idiom: 1 where the target says -1
    ("const %t: i64[3] = [-1, 4, -1]\nconst %m: i64[] = -1\n%e = Equal(%t, %m)\n"
     "const %o: i64[3] = [1, 1, 1]\n%y = Where(%e, %o, %n)", "[1, s, 1]"),
    ("const %z: i64[] = 0\nconst %o: i64[] = 1\nconst %i: i64[] = 2\n%g = Gather(%n, %i)\n"
     "%y = Range(%z, %g, %g)", "[0]"),
    ("const %z: i64[] = 0\nconst %o: i64[] = 1\nconst %i: i64[] = 1\n%g = Gather(%n, %i)\n"
     "%e = Add(%g, %o)\n%e2 = Add(%e, %o)\n%y = Range(%g, %e2, %o)", "[s, s + 1]"),
    ("const %k: i64[1] = [2]\n%y = ConstantOfShape(%k) {value = i64[1] [7]}", "[7, 7]"),
    ("const %k: i64[1] = [2]\n%y = ConstantOfShape(%k)", "[0, 0]"),
    ("const %i: i64[1] = [1]\n%g = Gather(%n, %i)\nconst %t: i64[2] = [2, 2]\n"
     "%y = Expand(%g, %t)", "[s, s, s, s]"),
    ("const %t: i64[1] = [2]\n%y = Tile(%n, %t)", "[b, s, 32, b, s, 32]"),
    ("const %a: i64[1] = [0]\n%y = ReduceProd(%n, %a) {keepdims = 0}", "32*b*s"),
    ("%y = ReduceSum(%n)", "[b + s + 32]"),
    ("%y = ReduceMax(%n) {keepdims = 0}", "max(b, s, 32)"),
    ("%y, %z = Split(%n) {axis = 0, num_outputs = 2}", "[b, s]"),
    ("%z, %y = Split(%n) {axis = 0, num_outputs = 2}", "[32]"),
    ("const %t: i64[2] = [1, 3]\n%r = Reshape(%n, %t)\n%y = Transpose(%r)", "[b, s, 32]"),
    ("const %i: i64[1, 1] = [[1]]\nconst %u: i64[1] = [9]\n%y = ScatterND(%n, %i, %u)",
     "[b, 9, 32]"),
    ("const %i: i64[1] = [-1]\nconst %u: i64[1] = [9]\n%y = ScatterElements(%n, %i, %u)",
     "[b, s, 9]"),
    ("const %k: i64[] = 1\n%e = Equal(%n, %k)\n%y = Not(%e)", "[?, ?, 1]"),
    ("const %f: bool[3] = [false, true, false]\nconst %k: i64[] = 1\n%e = Equal(%n, %k)\n"
     "%y = And(%e, %f)", "[0, ?, 0]"),
    ("%c = Cast(%n) {to = 9}\n%y = Identity(%c)", "[?, ?, 1]"),
    ("const %k: i64[] = 2\n%y = Pow(%n, %k)", "[b*b, s*s, 1024]"),
    ("const %l: i64[] = 1\nconst %h: i64[] = 9\n%y = Clip(%n, %l, %h)",
     "[min(max(b, 1), 9), min(max(s, 1), 9), 9]"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), FOLLOWED)
def test_followed(body: str, expected: str) -> None:
    assert known(SHAPE + body) == expected


def test_division_truncates_and_unproven_signs_are_unknown() -> None:
    body = "const %k: i64[] = 5\nconst %two: i64[] = 2\n%m = Sub(%n, %k)\n%y = Div(%m, %two)"
    assert known(SHAPE + body) == "[?, ?, 13]"
    body = "const %k: i64[2] = [-7, 7]\nconst %two: i64[2] = [2, -2]\n%y = Div(%k, %two)"
    assert known(body) == "[-3, -3]"


def test_what_a_type_would_wrap_or_round_is_unknown() -> None:
    assert known("const %k: i32[1] = [2147483647]\n%y = Add(%k, %k)") == ""
    assert known("const %k: i64[1] = [300]\n%y = Cast(%k) {to = 2}") == ""
    assert known("const %k: u8[2] = [1, 2]\nconst %l: u8[] = 2\n%y = Sub(%k, %l)") == "[?, 0]"
    assert known("const %k: f32[2] = [2.0, 0.5]\n%y = Cast(%k) {to = 7}") == "[2, ?]"
    assert known(SHAPE + "%m = Size(%x)\n%f = Cast(%m) {to = 1}\n%y = Cast(%f) {to = 7}") == ""


def test_a_known_index_out_of_range_names_the_node() -> None:
    with pytest.raises(ModelError, match="out of range") as caught:
        known(SHAPE + "const %i: i64[] = 3\n%y = Gather(%n, %i)")
    assert "'y'" in caught.value.where


def test_large_tensors_are_not_followed() -> None:
    assert known("const %k: i64[1] = [65]\n%y = ConstantOfShape(%k)") == ""
    assert known("const %k: i64[1] = [64]\n%y = ConstantOfShape(%k)").startswith("[0, 0")


def test_contents_feed_shapes() -> None:
    graph = parse("""graph (opset 17) {
      input %x: f32[b, s, 32]
      const %zero: i64[] = 0
      const %one: i64[] = 1
      const %axis: i64[1] = [0]
      const %h: i64[1] = [4]
      const %d: i64[1] = [-1]
      %n = Shape(%x)
      %b0 = Gather(%n, %zero)
      %s0 = Gather(%n, %one)
      %b1 = Unsqueeze(%b0, %axis)
      %s1 = Unsqueeze(%s0, %axis)
      %t = Concat(%b1, %s1, %h, %d) {axis = 0}
      %y = Reshape(%x, %t)
      return %y
    }""")
    infer_types(graph, strict=True)
    assert str(graph.type("y")) == "f32[b, s, 4, 8]"


# ---------------------------------------------------------------- arrays


def test_symbolic_array_prints_and_tells() -> None:
    array = SymbolicArray((3,), (2, None, symbol("n") + 1))
    assert str(array) == "[2, ?, n + 1]"
    assert not array.is_known
    assert array.numbers is None
    assert array.symbols() == {"n"}
    assert SymbolicArray((2,), (1, 2)).numbers == (1, 2)
    assert SymbolicArray.of_objects(array.objects()) == array


def test_an_expression_fits_only_where_no_size_is_rounded() -> None:
    n = symbol("n")
    assert fits(n, DType.F32) == n
    assert fits(n * n, DType.F32) is None
    assert fits(n * n, DType.F64) == n * n
    assert fits(n, DType.F16) is None
    assert fits(2**24 + 1, DType.F32) is None


def test_contents_of_constants() -> None:
    assert contents(Constant.of(np.array([1.0, np.nan, -np.inf, 2.5], np.float32))) == (
        SymbolicArray((4,), (1, None, None, None))
    )
    assert contents(Constant.of(np.array([True, False]))) == SymbolicArray((2,), (1, 0))
    assert contents(Constant.of(np.zeros((9, 9), np.int64))) is None


# ---------------------------------------------------------------- against the reference

BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"]
COMPARISONS = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]

chains = st.lists(
    st.tuples(
        st.sampled_from([*BINARY, *COMPARISONS, "Neg", "Abs", "Where"]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=8,
)


@given(chains, st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_random_arithmetic_is_what_the_reference_computes(
    chain: list[tuple[str, int, int]], b: int, s: int
) -> None:
    """Integer arithmetic on a shape, symbolic, then with numbers put in for the symbols."""
    lines = ["input %x: f32[b, s, 3]", "const %k: i64[3] = [2, -3, 5]", "%v0 = Shape(%x)"]
    names, truths = ["k", "v0"], []
    for i, (op, left, right) in enumerate(chain):
        a, c = names[left % len(names)], names[right % len(names)]
        out = f"w{i}"
        if op in COMPARISONS:
            lines.append(f"%{out} = {op}(%{a}, %{c})")
            truths.append(out)
            continue
        if op == "Where":
            if not truths:
                continue
            lines.append(f"%{out} = Where(%{truths[left % len(truths)]}, %{a}, %{c})")
        else:
            args = f"%{a}" if op in ("Neg", "Abs") else f"%{a}, %{c}"
            lines.append(f"%{out} = {op}({args})")
        names.append(out)
    outputs = [*names[1:], *truths]
    text = "\n".join([*lines, "return " + ", ".join(f"%{n}" for n in outputs)])
    graph = parse(f"graph (opset 20) {{\n{text}\n}}")
    facts = infer_types(graph)
    actual = _run(lines, outputs, (b, s, 3))
    for name, value in zip(outputs, actual, strict=True):
        found = facts.values.get(name)
        if value is None or found is None:
            continue
        for item, truth in zip(found.items, value.reshape(-1).tolist(), strict=True):
            if item is not None:
                assert substitute(item, {"b": b, "s": s}) == int(truth), (name, str(found))


def _run(lines: list[str], outputs: list[str], shape: tuple[int, ...]) -> list[np.ndarray | None]:
    """Every output by numpy's own integers; None behind a division by zero."""
    from gecompiler.ir import to_onnx

    wanted = ", ".join(f"%{n}" for n in outputs)
    model = to_onnx(parse("graph (opset 20) {\n" + "\n".join([*lines, f"return {wanted}"]) + "\n}"))
    values: dict[str, np.ndarray | None] = {"x": np.zeros(shape, np.float32)}
    for initializer in model.graph.initializer:
        values[initializer.name] = onnx.numpy_helper.to_array(initializer)
    for node in model.graph.node:
        feeds = {n: values[n] for n in node.input}
        zero = node.op_type in ("Div", "Mod") and not np.all(feeds[node.input[1]])
        if zero or any(v is None for v in feeds.values()):
            values[node.output[0]] = None
            continue
        (values[node.output[0]],) = ReferenceEvaluator(node).run(None, feeds)
    return [values[n] for n in outputs]


def test_every_pair_of_small_numbers_divides_as_the_reference_does() -> None:
    pairs = list(itertools.product([-7, -2, -1, 1, 2, 7], repeat=2))
    for (a, b), op in itertools.product(pairs, ["Div", "Mod", "Mod {fmod = 1}"]):
        name, _, attrs = op.partition(" ")
        text = f"const %a: i64[1] = [{a}]\nconst %b: i64[1] = [{b}]\n%y = {name}(%a, %b) {attrs}"
        expected = int(np.fmod(a, b)) if attrs else a % b if name == "Mod" else int(a / b)
        assert known(text) == f"[{expected}]"


@pytest.mark.parametrize(("op", "item"), [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", None)])
def test_reductions_over_no_elements_give_their_neutral_element(op: str, item: int | None) -> None:
    graph = parse(
        "graph (opset 18) {\n const %e: i64[2, 0] = []\n const %a: i64[1] = [1]\n"
        f" %y = {op}(%e, %a) {{keepdims = 0}}\n return %y\n}}"
    )
    found = infer_types(graph).values.get("y")
    assert (found.items if found else (None, None)) == (item, item)
