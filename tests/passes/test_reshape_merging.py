"""Reshape, Squeeze, Unsqueeze and Flatten in one canonical form."""

from __future__ import annotations

import onnx
import pytest
from rewriting_help import check, kinds, rewritten

from gecompiler.ir import Graph, symbol, to_onnx
from gecompiler.passes.canonical.reshape_forms import inserted_ones, needed_expand, reshape_target
from gecompiler.passes.canonical.reshape_merging import ReshapeMerging

B, S = symbol("b"), symbol("s")


@pytest.mark.parametrize(
    ("source", "target", "numbers"),
    [
        ((B, S, 32), (B, S, 4, 8), (0, 0, 4, 8)),
        ((B, 4, S, 8), (B, S, 32), (0, -1, 32)),
        ((B * S, 32), (B, S, 32), None),
        ((B, S, 32), (B * S, 32), (-1, 32)),
        ((2, 3), (6,), (6,)),
        ((B, S), (S, B), None),
        ((0, 4), (0, 2, 2), None),
        ((B, S), (B, S, 1), (0, 0, 1)),
        ((S, B, 2), (B, S, 2), None),
    ],
)
def test_target(source: tuple, target: tuple, numbers: tuple[int, ...] | None) -> None:
    assert reshape_target(source, target) == numbers


@pytest.mark.parametrize(
    ("source", "target", "axes"),
    [
        ((B, S), (B, 1, S), (1,)),
        ((B, S), (1, B, 1, S, 1), (0, 2, 4)),
        ((1, S), (1, 1, S), (1,)),
        ((S,), (S,), None),
        ((B, S), (B, S, 2), None),
        ((), (1, 1), (0, 1)),
        ((B, 1), (B,), None),
    ],
)
def test_inserted_ones(source: tuple, target: tuple, axes: tuple[int, ...] | None) -> None:
    assert inserted_ones(source, target) == axes


def test_needed_expand_is_one_where_the_size_is_there() -> None:
    assert needed_expand((B, 1, S), (2, B, 4, S)) == [2, 1, 4, 1]


def graph_of(*lines: str) -> str:
    return "\n".join(
        [
            "graph @g (opset 18) {",
            "input %x: f32[b, s, 32]",
            "const %minus: i64[1] = [-1]",
            "const %heads: i64[4] = [0, 0, 4, 8]",
            "const %flat: i64[2] = [-1, 32]",
            "const %joined: i64[3] = [0, -1, 32]",
            "const %one: i64[1] = [1]",
            "const %last: i64[1] = [-1]",
            *lines,
            "}",
        ]
    )


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["%y = Reshape(%x, %heads)"], [("Reshape", (0, 0, 4, 8))]),
        (["%a = Reshape(%x, %flat)", "%y = Reshape(%a, %flat)"], [("Reshape", (-1, 32))]),
        (["%a = Reshape(%x, %heads)", "%b = Reshape(%a, %joined)", "%y = Neg(%b)"], []),
        (["%a = Unsqueeze(%x, %one)", "%b = Squeeze(%a, %one)", "%y = Neg(%b)"], []),
        (
            ["%a = Unsqueeze(%x, %one)", "%y = Unsqueeze(%a, %last)"],
            [("Unsqueeze", (1, 4))],
        ),
        (["%y = Flatten(%x) {axis = 2}"], [("Reshape", (-1, 32))]),
        (["%a = Unsqueeze(%x, %one)", "%y = Squeeze(%a)"], None),
    ],
)
def test_chains(lines: list[str], left: list[tuple[str, tuple[int, ...]]] | None) -> None:
    graph = check(graph_of(*lines, "return %y"), {"b": 2, "s": 3}, ReshapeMerging())
    if left is not None:
        assert shown_moves(graph) == left


def shown_moves(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (op.op_type, tuple(graph.constants[op.inputs[1]].array().tolist()))
        for op in graph.ops
        if len(op.inputs) > 1
    ]


def test_a_chain_that_others_read_is_read_from_its_start() -> None:
    text = graph_of(
        "%a = Reshape(%x, %heads)",
        "%y = Neg(%a)",
        "%b = Unsqueeze(%a, %one)",
        "%z = Abs(%b)",
        "return %y, %z",
    )
    graph = check(text, {"b": 2, "s": 3}, ReshapeMerging())
    assert all(op.inputs[0] == "x" for op in graph.ops if op.op_type in ("Reshape", "Unsqueeze"))


def test_a_reshape_that_needs_two_sizes_stays() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b, s, 4]
      input %like: f32[b, s]
      const %flat: i64[2] = [-1, 4]
      const %four: i64[1] = [4]
      %a = Reshape(%x, %flat)
      %c = Neg(%a)
      %dims = Shape(%like)
      %t = Concat(%dims, %four) {axis = 0}
      %y = Reshape(%c, %t)
      return %y
    }"""
    graph = check(text, {"b": 2, "s": 3}, ReshapeMerging())
    assert kinds(graph)["Reshape"] == 2


def test_before_opset_13_axes_are_attributes() -> None:
    text = """graph @g (opset 11) {
      input %x: f32[b, s]
      %a = Unsqueeze(%x) {axes = [1]}
      %y = Unsqueeze(%a) {axes = [-1]}
      return %y
    }"""
    graph = check(text, {"b": 2, "s": 3}, ReshapeMerging())
    assert [dict(op.attrs) for op in graph.ops] == [{"axes": (1, 3)}]


def test_allowzero_gives_way_to_numbers() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[2, 12]
      const %t: i64[3] = [2, 3, 4]
      %y = Reshape(%x, %t) {allowzero = 1}
      return %y
    }"""
    graph = check(text, {}, ReshapeMerging())
    assert [dict(op.attrs) for op in graph.ops] == [{}]


def test_an_empty_tensor_keeps_its_reshape() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[0, 12]
      const %t: i64[3] = [0, 3, 4]
      %y = Reshape(%x, %t) {allowzero = 1}
      return %y
    }"""
    graph = rewritten(text, ReshapeMerging())
    assert [dict(op.attrs) for op in graph.ops] == [{"allowzero": 1}]


@pytest.mark.parametrize(("opset", "kind"), [(19, "Reshape"), (21, "Squeeze")])
def test_narrow_floats_keep_the_op_that_takes_them(opset: int, kind: str) -> None:
    text = f"""graph @g (opset {opset}) {{
      input %x: f8e5m2[3, 1, 1]
      const %t: i64[1] = [3]
      const %u: i64[3] = [1, 3, 1]
      %a = Reshape(%x, %u)
      %y = Reshape(%a, %t)
      return %y
    }}"""
    graph = rewritten(text)
    assert kinds(graph) == {kind: 1}
    onnx.checker.check_model(to_onnx(graph), full_check=True)
