"""Transposes that cancel, merge, or move nothing."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting_help import check, kinds

from gecompiler.passes.canonical.transpose_merging import TransposeMerging


def transposes(shape: str, *perms: tuple[int, ...]) -> str:
    lines = [f"input %v0: f32[{shape}]"]
    for i, perm in enumerate(perms):
        lines.append(f"%v{i + 1} = Transpose(%v{i}) {{perm = {list(perm)}}}")
    lines.append(f"%y = Neg(%v{len(perms)})")
    return "graph @g (opset 18) {" + "\n".join([*lines, "return %y", "}"])


@pytest.mark.parametrize("second", list(permutations(range(3))))
def test_two_are_one_or_none(second: tuple[int, ...]) -> None:
    graph = check(transposes("b, s, 4", (2, 0, 1), second), {"b": 2, "s": 3}, TransposeMerging())
    assert kinds(graph).get("Transpose", 0) == (0 if second == (1, 2, 0) else 1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.permutations(range(4)), min_size=1, max_size=5))
def test_any_number_is_at_most_one(perms: list[list[int]]) -> None:
    text = transposes("b, 3, s, 4", *(tuple(p) for p in perms))
    graph = check(text, {"b": 2, "s": 5}, TransposeMerging())
    assert len(graph) <= 2


def test_reversal_is_the_default() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b, s, 4]
      %a = Transpose(%x)
      %b = Transpose(%a)
      %y = Neg(%b)
      return %y
    }"""
    assert kinds(check(text, {"b": 2, "s": 3}, TransposeMerging())) == {"Neg": 1}


def test_moving_dims_of_size_one_is_a_reshape() -> None:
    graph = check(transposes("b, 1, 4, 8", (0, 2, 1, 3)), {"b": 2}, TransposeMerging())
    assert kinds(graph) == {"Reshape": 1, "Neg": 1}


def test_swapping_two_ones_is_nothing() -> None:
    assert kinds(check(transposes("1, b, 1", (2, 1, 0)), {"b": 2}, TransposeMerging())) == {
        "Neg": 1
    }


def grouped(target: str, back: str, middle: str = "[-1, 5, 8]") -> str:
    return f"""graph @g (opset 18) {{
      input %x: f32[{target}]
      const %flat: i64[3] = {middle}
      const %back: i64[4] = {back}
      %a = Reshape(%x, %flat)
      %b = Transpose(%a) {{perm = [0, 2, 1]}}
      %c = Reshape(%b, %back)
      %y = Neg(%c)
      return %y
    }}"""


def test_grouping_dims_to_swap_others_is_one_transpose() -> None:
    graph = check(grouped("2, 4, 5, 8", "[2, 4, 8, 5]"), {}, TransposeMerging())
    assert kinds(graph) == {"Transpose": 1, "Neg": 1}
    assert graph.ops[0].attr("perm") == (0, 1, 3, 2)


def test_grouping_from_other_dims_is_a_reshape_and_a_transpose() -> None:
    graph = check(grouped("4, 2, 5, 8", "[2, 4, 8, 5]"), {}, TransposeMerging())
    assert kinds(graph) == {"Reshape": 1, "Transpose": 1, "Neg": 1}


def test_a_reshape_that_mixes_what_was_swapped_stays() -> None:
    graph = check(grouped("2, 4, 5, 8", "[2, 4, 5, 8]"), {}, TransposeMerging())
    assert kinds(graph) == {"Reshape": 2, "Transpose": 1, "Neg": 1}


def test_a_swap_that_others_read_stays() -> None:
    text = grouped("2, 4, 5, 8", "[2, 4, 8, 5]").replace("return %y", "%z = Abs(%b) return %y, %z")
    assert kinds(check(text, {}, TransposeMerging()))["Reshape"] == 2
