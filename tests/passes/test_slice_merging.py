"""Slices: one canonical form, merged, and as Split where they cut a tensor up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting_help import check, kinds

from gecompiler.ir import Graph
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.canonical.no_op_removal import NoOpRemoval

END = 2**63 - 1


def slices(shape: str, *cuts: tuple[int, int, int, int]) -> str:
    """A chain of Slices, each (start, end, axis, step)."""
    lines = ["graph @g (opset 18) {", f"input %v0: f32[{shape}]"]
    for i, cut in enumerate(cuts):
        names = [f"c{i}_{k}" for k in range(4)]
        lines += [f"const %{n}: i64[1] = [{v}]" for n, v in zip(names, cut, strict=True)]
        lines.append(f"%v{i + 1} = Slice(%v{i}, {', '.join('%' + n for n in names)})")
    lines += [f"%y = Neg(%v{len(cuts)})", "return %y", "}"]
    return "\n".join(lines)


def operands(graph: Graph) -> list[list[int]]:
    (op,) = [op for op in graph.ops if op.op_type == "Slice"]
    return [graph.constants[v].array().tolist() for v in op.inputs[1:]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-8, 8), st.integers(-8, 8) | st.just(END), st.integers(-2, 1), st.just(1)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_chain_takes_the_same_elements(cuts: list[tuple[int, int, int, int]]) -> None:
    check(slices("6, s", *cuts), {"s": 5}, NoOpRemoval())


@pytest.mark.parametrize(
    "cut", [(5, 0, 0, -1), (END, -END, 0, -1), (-1, -99, 1, -2), (0, END, 0, 2), (1, 5, 1, 3)]
)
def test_steps_are_kept(cut: tuple[int, int, int, int]) -> None:
    graph = check(slices("6, s", cut), {"s": 5}, NoOpRemoval())
    assert kinds(graph) == {"Slice": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("cuts", "left"),
    [
        ([(0, 3, 0, 1), (1, END, 0, 1)], [[1], [3], [0]]),
        ([(1, END, 0, 1), (1, 3, 0, 1)], [[2], [4], [0]]),
        ([(1, END, 1, 1), (0, 2, 0, 1)], [[0, 1], [2, END], [0, 1]]),
        ([(-4, END, 0, 1)], [[2], [END], [0]]),
        ([(-2, END, 1, 1)], [[-2], [END], [1]]),
        ([(1, 99, 0, 1)], [[1], [END], [0]]),
    ],
)
def test_canonical_form(cuts: list[tuple[int, int, int, int]], left: list[list[int]]) -> None:
    assert operands(check(slices("6, s", *cuts), {"s": 5}, NoOpRemoval())) == left


def test_an_end_computed_from_the_shape_is_the_end() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b, s]
      const %zero: i64[1] = [0]
      const %one: i64[1] = [1]
      const %two: i64[1] = [2]
      %dims = Shape(%x)
      %size = Slice(%dims, %one, %two)
      %a = Slice(%x, %zero, %size, %one)
      %y = Neg(%a)
      return %y
    }"""
    assert kinds(check(text, {"b": 2, "s": 5})) == {"Neg": 1}


def test_halves_are_one_split() -> None:
    text = """graph @g (opset 18) {
      input %x: f32[b, s, 8]
      const %zero: i64[1] = [0]
      const %half: i64[1] = [4]
      const %end: i64[1] = [9223372036854775807]
      const %axis: i64[1] = [2]
      %a = Slice(%x, %zero, %half, %axis)
      %b = Slice(%x, %half, %end, %axis)
      %n = Neg(%b)
      %y = Concat(%n, %a) {axis = -1}
      return %y
    }"""
    assert kinds(check(text, {"b": 2, "s": 3})) == {"Split": 1, "Neg": 1, "Concat": 1}


@pytest.mark.parametrize(
    ("cuts", "splits"),
    [
        ([(0, 2), (2, 5), (5, 8)], 1),
        ([(0, 2), (3, 8)], 0),  # a gap
        ([(0, 4), (2, 8)], 0),  # an overlap
        ([(0, 4), (4, 7)], 0),  # something is left
        ([(0, 4), (4, 8), (1, 3)], 1),  # one more that is no part
    ],
)
def test_parts_must_cover_the_axis(cuts: list[tuple[int, int]], splits: int) -> None:
    lines = ["graph @g (opset 18) {", "input %x: f32[b, 8]", "const %one: i64[1] = [1]"]
    for i, (start, end) in enumerate(cuts):
        lines += [f"const %s{i}: i64[1] = [{start}]", f"const %e{i}: i64[1] = [{end}]"]
        lines += [f"%p{i} = Slice(%x, %s{i}, %e{i}, %one)", f"%y{i} = Neg(%p{i})"]
    lines += [f"return {', '.join(f'%y{i}' for i in range(len(cuts)))}", "}"]
    graph = check("\n".join(lines), {"b": 3}, Canonicalize())
    assert kinds(graph).get("Split", 0) == splits


def test_an_attribute_slice_of_opset_9_is_merged_too() -> None:
    text = """graph @g (opset 9) {
      input %x: f32[6, s]
      %a = Slice(%x) {axes = [0], starts = [1], ends = [5]}
      %b = Slice(%a) {axes = [0], starts = [1], ends = [9]}
      %y = Neg(%b)
      return %y
    }"""
    graph = check(text, {"s": 2}, NoOpRemoval())
    assert [dict(op.attrs) for op in graph.ops if op.op_type == "Slice"] == [
        {"axes": (0,), "starts": (2,), "ends": (5,)}
    ]


def test_python_agrees_on_the_meaning_of_the_canonical_form() -> None:
    x = np.arange(6)
    assert x[2:END].tolist() == x[-4:].tolist()
