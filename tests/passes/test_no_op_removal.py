"""Ops that hand on what they get, and the near misses that must stay."""

from __future__ import annotations

import pytest
from rewriting_help import check, kinds, rewritten

from gecompiler.passes.canonical.no_op_removal import NoOpRemoval


def one_op(line: str, consts: str = "", types: str = "f32[b, 4]") -> str:
    """A graph in which Relu reads what the op makes, so that the op can vanish altogether."""
    return f"""graph @g (opset 18) {{
      input %x: {types}
      {consts}
      %y = {line}
      %z = Cos(%y)
      %w = Neg(%y)
      return %z, %w
    }}"""


GONE = [
    ("Identity(%x)", ""),
    ("Concat(%x) {axis = 0}", ""),
    ("Sum(%x)", ""),
    ("Max(%x)", ""),
    ("Mul(%x, %c)", "const %c: f32[] = 1.0"),
    ("Mul(%c, %x)", "const %c: f32[4] = [1.0, 1.0, 1.0, 1.0]"),
    ("Div(%x, %c)", "const %c: f32[1] = [1.0]"),
    ("Pow(%x, %c)", "const %c: f32[] = 1.0"),
    ("Pow(%x, %c)", "const %c: i64[] = 1"),
    ("Sub(%x, %c)", "const %c: f32[] = 0.0"),
    ("Add(%x, %c)", "const %c: f32[] = -0.0"),
    ("Expand(%x, %c)", "const %c: i64[2] = [1, 4]"),
    ("Tile(%x, %c)", "const %c: i64[2] = [1, 1]"),
    ("Split(%x) {axis = 1, num_outputs = 1}", ""),
    ("Pad(%x, %c)", "const %c: i64[4] = [0, 0, 0, 0]"),
    ("Cast(%x) {to = 1}", ""),
    ("Where(%c, %x, %d)", "const %c: bool[] = true const %d: f32[] = 2.0"),
    ("Where(%c, %d, %x)", "const %c: bool[1] = [false] const %d: f32[] = 2.0"),
    (
        "Slice(%x, %s, %e, %a)",
        "const %s: i64[1] = [0] const %e: i64[1] = [4] const %a: i64[1] = [1]",
    ),
    ("Slice(%x, %s, %e)", "const %s: i64[1] = [0] const %e: i64[1] = [9223372036854775807]"),
    (
        "Slice(%x, %s, %e, %a)",
        "const %s: i64[1] = [-4] const %e: i64[1] = [99] const %a: i64[1] = [-1]",
    ),
]


@pytest.mark.parametrize(("line", "consts"), GONE)
def test_goes(line: str, consts: str) -> None:
    graph = check(one_op(line, consts), {"b": 5}, NoOpRemoval())
    assert kinds(graph) == {"Cos": 1, "Neg": 1}


STAYS = [
    ("Mul(%x, %c)", "const %c: f32[] = 1.0000001"),
    ("Mul(%x, %c)", "const %c: f32[1, 1, 1] = [[[1.0]]]"),  # one dim more
    ("Mul(%x, %c)", "const %c: f32[4] = [1.0, 1.0, 1.0, 2.0]"),
    ("Div(%c, %x)", "const %c: f32[] = 1.0"),
    ("Pow(%c, %x)", "const %c: f32[] = 1.0"),
    ("Add(%x, %c)", "const %c: f32[] = 0.0"),  # Neg sees the sign of a zero
    ("Sub(%x, %c)", "const %c: f32[] = -0.0"),
    ("Sub(%c, %x)", "const %c: f32[] = 0.0"),
    ("Expand(%x, %c)", "const %c: i64[3] = [2, 1, 1]"),
    ("Tile(%x, %c)", "const %c: i64[2] = [1, 2]"),
    ("Pad(%x, %c)", "const %c: i64[4] = [0, 0, 0, 1]"),
    ("Cast(%x) {to = 10}", ""),
    ("Where(%c, %x, %d)", "const %c: bool[4] = [true, true, true, false] const %d: f32[] = 2.0"),
    ("Where(%c, %x, %d)", "const %c: bool[1, 1, 1] = [[[true]]] const %d: f32[] = 2.0"),
    ("Slice(%x, %s, %e)", "const %s: i64[1] = [0] const %e: i64[1] = [1]"),
]


@pytest.mark.parametrize(("line", "consts"), STAYS)
def test_stays(line: str, consts: str) -> None:
    graph = check(one_op(line, consts), {"b": 5}, NoOpRemoval())
    assert len(graph) == 3


@pytest.mark.parametrize("reader", ["Cos(%y)", "Softmax(%y)", "Sigmoid(%y)", "Equal(%y, %c)"])
def test_adding_zero_goes_where_nobody_sees_the_sign_of_zero(reader: str) -> None:
    text = f"""graph @g (opset 18) {{
      input %x: f32[b, 4]
      const %c: f32[] = 0.0
      %y = Add(%x, %c)
      %z = {reader}
      return %z
    }}"""
    assert len(check(text, {"b": 6}, NoOpRemoval())) == 1


@pytest.mark.parametrize("reader", ["Neg(%y)", "Reciprocal(%y)", "Sqrt(%y)"])
def test_adding_zero_stays_where_somebody_does(reader: str) -> None:
    text = f"""graph @g (opset 18) {{
      input %x: f32[b, 4]
      const %c: f32[] = 0.0
      %y = Add(%x, %c)
      %z = {reader}
      %w = Cos(%y)
      return %z, %w
    }}"""
    assert len(check(text, {"b": 6}, NoOpRemoval())) == 3


def test_integers_have_one_zero() -> None:
    text = """graph @g (opset 18) {
      input %x: i64[b]
      const %c: i64[] = 0
      const %one: i64[] = 1
      %a = Add(%c, %x)
      %b = Mul(%a, %one)
      %z = Neg(%b)
      return %z
    }"""
    assert kinds(check(text, {"b": 6}, NoOpRemoval())) == {"Neg": 1}


@pytest.mark.parametrize(
    ("op", "types"), [("Not", "bool[b]"), ("Neg", "f32[b]"), ("Neg", "i32[b]")]
)
def test_twice_is_nothing(op: str, types: str) -> None:
    text = f"""graph @g (opset 18) {{
      input %x: {types}
      %a = {op}(%x)
      %b = {op}(%a)
      %c = {op}(%b)
      return %c
    }}"""
    assert kinds(check(text, {"b": 4}, NoOpRemoval())) == {op: 1}


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("And(%m, %true)", 1),
        ("And(%true, %m)", 1),
        ("Or(%m, %false)", 1),
        ("Xor(%m, %false)", 1),
        ("And(%m, %m)", 1),
        ("Or(%m, %m)", 1),
        ("Xor(%m, %m)", 2),
        ("And(%m, %false)", 2),
    ],
)
def test_logic(line: str, left: int) -> None:
    text = f"""graph @g (opset 18) {{
      input %m: bool[b]
      const %true: bool[] = true
      const %false: bool[] = false
      %y = {line}
      %z = Not(%y)
      return %z
    }}"""
    assert len(check(text, {"b": 9}, NoOpRemoval())) == left


def test_the_true_that_widens_a_mask_becomes_an_expand() -> None:
    text = """graph @g (opset 18) {
      input %m: bool[b]
      const %true: bool[3, 1] = [[true], [true], [true]]
      %y = And(%m, %true)
      return %y
    }"""
    assert kinds(check(text, {"b": 4}, NoOpRemoval())) == {"Expand": 1}


def test_a_graph_output_keeps_its_name() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b]
      %a = Cos(%x)
      %y = Identity(%a)
      %z = Identity(%x)
      %w = Identity(%a)
      return %y, %z, %w
    }"""
    graph = check(text, {"b": 3}, NoOpRemoval())
    assert graph.outputs == ("y", "z", "w")
    assert kinds(graph) == {"Cos": 1, "Identity": 2}
    maker = graph.producer("y")
    assert maker is not None
    assert maker.op_type == "Cos"


def test_an_output_that_becomes_a_copy_is_one_identity() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b]
      const %one: f32[] = 1.0
      %y = Mul(%x, %one)
      %z = Cos(%y)
      return %y, %z
    }"""
    graph = check(text, {"b": 3}, NoOpRemoval())
    assert kinds(graph) == {"Identity": 1, "Cos": 1}
    maker = graph.producer("z")
    assert maker is not None
    assert maker.inputs == ("x",)


def test_ops_held_in_an_order_stay() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b]
      %y = Identity(%x) @copy
      %z = Cos(%y) @cos
      %w = Sin(%x) @sin
      control @copy -> @sin
      return %z, %w
    }"""
    assert kinds(rewritten(text, NoOpRemoval())) == {"Identity": 1, "Cos": 1, "Sin": 1}
