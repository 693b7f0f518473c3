"""The engine: what a rule's result does to a graph, and that it comes to an end."""

from __future__ import annotations

import logging

import pytest
from rewriting_help import kinds

from gecompiler.ir import Constant, Graph, Op, parse
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.effects import has_side_effects, is_pure, is_random
from gecompiler.passes.rewriting import Rewriter, RuleTable, merge_tables

TEXT = """graph @g (opset 18) {
  input %x: f32[4]
  %a: f32[4] = Neg(%x) @neg
  %b: f32[4] = Abs(%a) @abs
  %c: f32[4] = Cos(%b) @cos
  return %c
}"""


def run(rules: RuleTable, text: str = TEXT) -> tuple[Graph, int]:
    graph = parse(text)
    return graph, Rewriter(graph, ValueFacts(graph)).run(rules)


def test_an_op_takes_the_place_of_another() -> None:
    graph, changes = run({"Abs": (lambda r, op: op.with_(op_type="Relu"),)})
    assert changes == 1
    assert graph.op("abs").op_type == "Relu"
    assert graph.op("cos").inputs == ("b",)


def test_a_value_takes_the_place_of_the_output_and_what_is_dead_goes() -> None:
    graph, changes = run({"Abs": (lambda r, op: "x",)})
    assert changes == 1
    assert kinds(graph) == {"Cos": 1}


def test_a_constant_takes_the_place_of_the_output() -> None:
    graph, changes = run({"Cos": (lambda r, op: Constant.of([1.0] * 4, r.facts.dtype("c")),)})
    assert changes == 1
    assert kinds(graph) == {"Identity": 1}
    assert graph.outputs == ("c",)


def test_none_is_no_match() -> None:
    graph, changes = run({"*": (lambda r, op: None,)})
    assert changes == 0
    assert str(graph) == str(parse(TEXT))


def test_a_value_of_another_type_is_not_taken() -> None:
    text = TEXT.replace("input %x: f32[4]", "input %x: f32[4] input %i: i64[4]")
    assert run({"Abs": (lambda r, op: "i",)}, text)[1] == 0


def test_what_a_rewrite_reveals_is_looked_at() -> None:
    lines = ["graph @g (opset 18) {", "input %v0: f32[4]"]
    lines += [f"%v{i + 1}: f32[4] = Neg(%v{i})" for i in range(100)]
    text = "\n".join([*lines, "%y = Abs(%v100)", "return %y", "}"])

    def cancel(r: Rewriter, op: Op) -> str | None:
        maker = r.graph.producer(op.inputs[0])
        return maker.inputs[0] if maker is not None and maker.is_("Neg") else None

    graph, changes = run({"Neg": (cancel,)}, text)
    assert changes == 50
    assert kinds(graph) == {"Abs": 1}


def test_rules_of_a_kind_come_before_the_general_ones_and_in_order() -> None:
    order: list[str] = []

    def note(name: str) -> RuleTable:
        def rule(r: Rewriter, op: Op) -> None:
            order.append(name)

        return {name.split("-", maxsplit=1)[0]: (rule,)}

    run(merge_tables(note("*-1"), note("Abs-1"), note("Abs-2")))
    assert order == ["*-1", "Abs-1", "Abs-2", "*-1", "*-1"]


def test_rules_that_undo_each_other_are_stopped(caplog: pytest.LogCaptureFixture) -> None:
    rules: RuleTable = {
        "Abs": (lambda r, op: op.with_(op_type="Relu"),),
        "Relu": (lambda r, op: op.with_(op_type="Abs"),),
    }
    with caplog.at_level(logging.WARNING):
        graph, _ = run(rules)
    assert "stopped" in caplog.text
    graph.verify()


def test_equal_small_constants_are_shared() -> None:
    graph = parse("graph @g { input %x: f32[4] const %a: i64[2] = [1, 2] return %x }")
    rewriter = Rewriter(graph, ValueFacts(graph))
    assert rewriter.ints((1, 2), "b") == "a"
    assert rewriter.ints((1, 3), "b") == "b"
    assert rewriter.ints((1, 3), "c") == "b"


@pytest.mark.parametrize(
    ("op", "random", "effects"),
    [
        (Op("a", "Add", (), ()), False, False),
        (Op("a", "RandomNormal", (), ()), True, False),
        (Op("a", "Dropout", ("x", "r", "t"), ()), True, False),
        (Op("a", "Dropout", ("x", "r"), ()), False, False),
        (Op("a", "AllReduce", (), (), domain="com.microsoft"), False, True),
        (Op("a", "AllReduce", (), (), domain="gecompiler"), False, True),
        (Op("a", "FlashAttention", (), (), domain="gecompiler"), False, False),
        (Op("a", "Anything", (), (), domain="my.domain"), False, True),
    ],
)
def test_effects(op: Op, random: bool, effects: bool) -> None:
    assert is_random(op) == random
    assert has_side_effects(op) == effects
    assert is_pure(op) == (not random and not effects)


def test_a_body_has_the_effects_of_its_ops() -> None:
    body = parse("graph @b { %y = RandomNormal() {shape = [2]} return %y }")
    op = Op("a", "Loop", (), (), {"body": body})
    assert is_random(op)
    assert not has_side_effects(op)


def test_a_shared_constant_that_was_merged_away_is_looked_for_again() -> None:
    text = """graph @g {
      input %x: f32[4]
      const %a: i64[2] = [1, 2]
      const %b: i64[2] = [1, 2]
      return %x
    }"""
    graph = parse(text)
    rewriter = Rewriter(graph, ValueFacts(graph))
    graph.remove_constant("a")
    assert rewriter.ints((1, 2), "c") == "b"
