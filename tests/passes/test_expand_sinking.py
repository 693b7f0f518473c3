"""Expands that vanish at the next op that broadcasts, or move behind what they feed."""

from __future__ import annotations

import pytest
from rewriting_help import check, kinds

SIZES = {"b": 2, "s": 3}


def mask(*lines: str) -> str:
    return "\n".join(
        [
            "graph @g (opset 18) {",
            "input %m: bool[b, 1, 1, s]",
            "input %x: f32[b, 4, s, s]",
            "const %zero: f32[] = 0.0",
            "const %low: f32[] = -inf",
            "const %i0: i64[] = 0",
            "%d = Shape(%x)",
            "const %a: i64[1] = [2]",
            "const %e: i64[1] = [3]",
            "%s = Slice(%d, %a, %e)",
            "const %ones: i64[2] = [1, 1]",
            "const %one: i64[1] = [1]",
            "%t = Concat(%ones, %s, %one) {axis = 0}",
            "%w = Expand(%m, %t)",
            *lines,
            "}",
        ]
    )


def test_a_mask_is_not_widened_for_an_add() -> None:
    text = mask("%f = Where(%w, %zero, %low)", "%y = Add(%x, %f)", "return %y")
    assert kinds(check(text, SIZES)) == {"Where": 1, "Add": 1}


def test_it_is_when_somebody_wants_it_wide() -> None:
    text = mask("%f = Where(%w, %zero, %low)", "%y = Add(%x, %f)", "return %y, %f")
    assert kinds(check(text, SIZES))["Expand"] == 1


@pytest.mark.parametrize("op", ["Not", "Cast"])
def test_it_moves_behind_what_it_feeds(op: str) -> None:
    attrs = " {to = 1}" if op == "Cast" else ""
    found = check(mask(f"%y = {op}(%w){attrs}", "return %y"), SIZES)
    assert found.topological()[-1].op_type == "Expand"


def test_not_when_others_read_the_wide_tensor() -> None:
    found = check(mask("%y = Not(%w)", "%z = Cast(%w) {to = 1}", "return %y, %z"), SIZES)
    assert kinds(found)["Expand"] == 1


def test_a_size_that_may_differ_keeps_its_expand() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[1, s]
      input %y: f32[n, s]
      input %like: f32[k, s]
      %d = Shape(%like)
      %w = Expand(%x, %d)
      %z = Add(%w, %y)
      return %z
    }"""
    assert kinds(check(text, {"s": 2, "n": 1, "k": 3}))["Expand"] == 1
