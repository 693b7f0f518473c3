"""What no output depends on goes; what has effects stays."""

from __future__ import annotations

from rewriting_help import apply, kinds, rewritten

from gecompiler.ir import parse
from gecompiler.passes.canonical.dead_code import DeadCode


def test_chains_and_constants_that_nobody_reads() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2]
      input %unused: f32[2]
      const %c: f32[] = 1.0
      const %d: f32[] = 1.0
      %a = Add(%x, %c)
      %b = Neg(%a)
      %e = Abs(%b)
      %y = Cos(%x)
      return %y
    }"""
    graph = parse(text)
    assert apply(graph, DeadCode()) == 5
    assert kinds(graph) == {"Cos": 1}
    assert not graph.constants
    assert graph.inputs == ("x", "unused")


def test_outputs_side_effects_and_order_keep_ops() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2]
      const %c: f32[2] = [1.0, 2.0]
      %a = unknown.Log(%x)
      %b = Neg(%x) @first
      %d = com.microsoft.AllReduce(%x)
      %y = Cos(%x) @second
      control @first -> @second
      return %y, %c
    }"""
    assert apply(parse(text), DeadCode()) == 0


def test_one_used_output_keeps_the_op() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[4]
      const %s: i64[2] = [2, 2]
      %a, %b = Split(%x, %s)
      return %b
    }"""
    assert kinds(rewritten(text, DeadCode())) == {"Split": 1}


def test_what_a_body_reads_is_used() -> None:
    text = """graph @g (opset 18) {
      input %c: bool[]
      input %x: f32[2]
      const %w: f32[2] = [1.0, 2.0]
      %a = Neg(%x)
      %y: f32[2] = If(%c) {
        then_branch = graph @t { outer %a: f32[2] %r: f32[2] = Neg(%a) return %r },
        else_branch = graph @e { outer %w: f32[2] %r: f32[2] = Abs(%w) return %r }
      }
      return %y
    }"""
    assert apply(parse(text), DeadCode()) == 0


def test_a_long_dead_chain_costs_no_stack() -> None:
    lines = ["graph @g (opset 18) {", "input %v0: f32[2]"]
    lines += [f"%v{i + 1} = Neg(%v{i})" for i in range(3000)]
    graph = parse("\n".join([*lines, "return %v0", "}"]))
    assert apply(graph, DeadCode()) == 3000
