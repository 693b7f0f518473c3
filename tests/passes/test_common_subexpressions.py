"""What is computed twice is computed once, and what only looks alike is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewriting_help import apply, check, kinds, rewritten

from gecompiler.ir import Constant, Graph, parse, tensor
from gecompiler.ir.onnx_io.data import ExternalData
from gecompiler.passes.canonical.common_subexpressions import CommonSubexpressions

CSE = CommonSubexpressions()


def two(first: str, second: str, ins: str = "input %x: f32[b, 4] input %y: f32[b, 4]") -> str:
    return f"""graph @g (opset 18) {{
      {ins}
      const %c: f32[] = 2.0
      const %d: f32[] = 2.0
      const %e: f32[1] = [2.0]
      %a = {first}
      %b = {second}
      %p = Neg(%a)
      %q = Abs(%b)
      return %p, %q
    }}"""


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("Cos(%x)", "Cos(%x)", True),
        ("Cos(%x)", "Cos(%y)", False),
        ("Cos(%x)", "Sin(%x)", False),
        ("Add(%x, %y)", "Add(%y, %x)", True),
        ("Sub(%x, %y)", "Sub(%y, %x)", False),
        ("Mul(%x, %c)", "Mul(%x, %d)", True),
        ("Mul(%x, %c)", "Mul(%x, %e)", False),
        ("Softmax(%x) {axis = 0}", "Softmax(%x) {axis = 1}", False),
        ("Elu(%x) {alpha = 1.0}", "Elu(%x) {alpha = 1.0}", True),
        ("RandomUniformLike(%x)", "RandomUniformLike(%x)", False),
        ("Clip(%x, _, %c)", "Clip(%x, %c)", False),
        ("strange.Op(%x)", "strange.Op(%x)", False),
        ("com.microsoft.FastGelu(%x)", "com.microsoft.FastGelu(%x)", True),
    ],
)
def test_ops(first: str, second: str, merged: bool) -> None:
    graph = rewritten(two(first, second), CSE)
    assert len(graph) == (3 if merged else 4)


def test_attributes_that_hold_tensors_are_compared_by_content() -> None:
    text = """graph @g (opset 18) {
      input %x: i64[2]
      %a = ConstantOfShape(%x) {value = f32[1] [1.0]}
      %b = ConstantOfShape(%x) {value = f32[1] [1.0]}
      %c = ConstantOfShape(%x) {value = f32[1] [2.0]}
      %y = Neg(%a) %z = Abs(%b) %w = Cos(%c)
      return %y, %z, %w
    }"""
    assert kinds(rewritten(text, CSE))["ConstantOfShape"] == 2


def test_ops_that_the_user_treats_differently_stay_apart() -> None:
    text = two("Cos(%x)", "Cos(%x)").replace("%b = Cos(%x)", '%b = Cos(%x) label "side"')
    assert len(rewritten(text, CSE)) == 4


def test_chains_of_equal_ops_merge_in_one_run() -> None:
    lines = ["graph @g (opset 18) {", "input %x: f32[4]"]
    for side in "ab":
        lines += [f"%{side}0 = Cos(%x)"]
        lines += [f"%{side}{i + 1} = Sin(%{side}{i})" for i in range(20)]
    lines += ["%y = Sub(%a20, %b20)", "return %y", "}"]
    assert len(rewritten("\n".join(lines), CSE)) == 22


def test_several_outputs() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[4]
      const %s: i64[2] = [2, 2]
      %a, %b = Split(%x, %s)
      %c, %d = Split(%x, %s)
      %y = Add(%a, %d)
      return %y
    }"""
    graph = check(text, {}, CSE)
    assert kinds(graph) == {"Split": 1, "Add": 1}


def test_two_outputs_of_the_graph_keep_their_names() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[4]
      %y = Cos(%x)
      %z = Cos(%x)
      return %y, %z
    }"""
    graph = check(text, {}, CSE)
    assert graph.outputs == ("y", "z")
    assert kinds(graph) == {"Cos": 1, "Identity": 1}


def test_equal_constants_are_one() -> None:
    big = np.arange(1000, dtype=np.float32)
    graph = parse("graph @g { input %x: f32[1000] return %x }")
    other = big.copy()
    other[500] += 1
    for name, array in (("a", big), ("b", big.copy()), ("c", other), ("d", big.astype("f8"))):
        graph.add_constant(name, Constant.of(array))
    for name in "abc":
        graph.emit("Add", ["x", name], graph.type("x"), stem=f"add_{name}")
    assert apply(graph, CSE) == 1
    assert set(graph.constants) == {"a", "c", "d"}


def test_zeros_of_either_sign_and_types_are_told_apart() -> None:
    graph = parse("graph @g { input %x: f32[] return %x }")
    for name, array in (("a", np.float32(0.0)), ("b", np.float32(-0.0)), ("c", np.int32(0))):
        graph.add_constant(name, Constant.of(array))
    assert apply(graph, CSE) == 0


def in_file(offset: int) -> Constant:
    source = ExternalData(f"w{offset}", Path("/nowhere"), "w.bin", offset)
    return Constant(tensor("f32", (4,)), source=source)


def test_constants_in_files_are_equal_by_place_and_absent_ones_never() -> None:
    graph = parse("graph @g { input %x: f32[4] return %x }")
    for name, constant in (
        ("a", in_file(0)),
        ("b", Constant(in_file(0).type, source=ExternalData("x", Path("/nowhere"), "w.bin", 0))),
        ("c", in_file(16)),
        ("d", Constant.absent(tensor("f32", (4,)))),
        ("e", Constant.absent(tensor("f32", (4,)))),
    ):
        graph.add_constant(name, constant)
        graph.emit("Add", ["x", name], graph.type("x"), stem=f"add_{name}")
    apply(graph, CSE)
    assert set(graph.constants) == {"a", "c", "d", "e"}


def test_bodies_that_read_a_merged_value_read_the_one_that_is_kept() -> None:
    text = """graph @g (opset 18) {
      input %c: bool[]
      input %x: f32[2]
      %a = Cos(%x)
      %b = Cos(%x)
      %s = Neg(%a)
      %y: f32[2] = If(%c) {
        then_branch = graph @t { outer %b: f32[2] %r: f32[2] = Neg(%b) return %r },
        else_branch = graph @e { outer %b: f32[2] %r: f32[2] = Abs(%b) return %r }
      }
      return %y, %s
    }"""
    graph: Graph = check(text, {}, CSE)
    assert kinds(graph) == {"Cos": 1, "Neg": 1, "If": 1}
