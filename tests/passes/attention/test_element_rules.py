"""Each op that elements are followed through: understood, and as onnxruntime computes it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from attention_help import run
from element_values import Env, value_of

from gecompiler.ir import parse
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.elements import Element, Elements, Opaque, Truth
from gecompiler.passes.attention.predicates import Lookup

B, S = 2, 5
SIZES = "input %m: i64[b, s] input %x: f32[b, s] input %k: bool[b, s] input %five: i64[5]"
POSITIONS = """
    %dims = Shape(%m)
    const %i0: i64[] = 0
    const %i1: i64[] = 1
    %n = Gather(%dims, %i1) {axis = 0}
    %r = Range(%i0, %n, %i1)
    const %a0: i64[1] = [0]
    const %a1: i64[1] = [1]
    %row = Unsqueeze(%r, %a0)
    %column = Unsqueeze(%r, %a1)
    %grid = Sub(%row, %column)
"""


def graph_of(lines: str) -> Graph:
    graph = parse(f"graph (opset 18) {{ {SIZES} {POSITIONS} {lines} return %y }}")
    infer_types(graph)
    return graph


def known_everywhere(e: Element, value: str) -> bool:
    if isinstance(e, Truth) and isinstance(e.predicate, Lookup):
        return e.predicate.value != value
    return not isinstance(e, Opaque) or e.value != value


def check(lines: str, *, symbols: bool = True, numbers: bool = True) -> None:
    """Every element of %y, by coordinates that are symbols and by numbers, is what is computed.

    ``symbols``, ``numbers``: whether something is said of all of them.
    """
    graph = graph_of(lines)
    draw = np.random.default_rng(3)
    feeds = {
        "m": draw.integers(0, 2, (B, S)),
        "x": draw.standard_normal((B, S)).astype(np.float32),
        "k": draw.random((B, S)) < 0.5,
        "five": np.array([3, 1, 4, 1, 5]),
    }
    feeds = {name: feeds[name] for name in graph.inputs}
    inside = [v for v in graph.values if v not in graph.inputs and v not in graph.constants]
    graph.set_outputs(list(dict.fromkeys([*graph.outputs, *inside])))
    arrays: dict[str, Any] = run(graph, feeds) | feeds
    arrays |= {name: c.array() for name, c in graph.constants.items()}
    e = Elements(graph)
    shape = graph.shape("y")
    assert shape is not None
    variables = [e.coordinates.variable(f"x{n}", d) for n, d in enumerate(shape)]
    general = e.at("y", tuple(variables))
    assert known_everywhere(general, "y") == symbols, general
    singly = []
    for index in itertools.product(*map(range, arrays["y"].shape)):
        env: Env = {"b": B, "s": S}
        for variable, position in zip(variables, index, strict=True):
            if not isinstance(variable, int):
                env[str(variable)] = position
        single = e.at("y", index)
        singly.append(known_everywhere(single, "y"))
        for found in (general, single):
            np.testing.assert_equal(value_of(found, arrays, env), arrays["y"][index])
    assert all(singly) == numbers


MOVED = [
    "const %c: i64[1] = [3] %y = Tile(%r, %c)",
    "const %c: i64[2] = [2, 1] %y = Tile(%grid, %c)",
    "const %c: i64[2] = [1, 2] %y = Tile(%m, %c)",
    "const %t: i64[3] = [4, 5, 6] const %c: i64[1] = [2] %y = Tile(%t, %c)",
    "const %t: i64[1, 3] = [[4, 5, 6]] const %c: i64[2] = [3, 1] %y = Tile(%t, %c)",
    "const %c: i64[3] = [2, 1, 1] %y = Expand(%grid, %c)",
    "const %c: i64[1] = [1] const %z: i64[1] = [9] %y = Slice(%five, %c, %z)",
    "const %c: i64[1] = [-2] const %z: i64[1] = [9] %y = Slice(%five, %c, %z)",
    "const %c: i64[1] = [1] const %z: i64[1] = [5] const %t: i64[1] = [2]"
    " %y = Slice(%five, %c, %z, %a0, %t)",
    "const %c: i64[2] = [0, 1] const %z: i64[2] = [1, 3] %y = Slice(%m, %c, %z)",
    "const %c: i64[1] = [1] const %z: i64[1] = [3] %y = Slice(%grid, %c, %z, %a1)",
    "const %c: i64[2] = [0, 0] const %z: i64[2] = [4, 4] const %w: i64[2] = [1, 0]"
    " %y = Slice(%grid, %c, %z, %w)",
    "const %c: i64[2] = [2, 3] %h, %y = Split(%five, %c)",
    "const %c: i64[3] = [1, 1, 3] %h, %y, %g = Split(%five, %c) {axis = -1}",
    "const %c: i64[2] = [1, 1] %h, %y = Split(%m, %c)",
    "%y = Concat(%five) {axis = 0}",
    "const %z: i64[1] = [0] const %o: i64[2] = [1, 2] %y = Concat(%z, %o) {axis = -1}",
    "%y = Concat(%row, %row) {axis = 0}",
    "%y = Concat(%column, %column) {axis = 1}",
    "%y = Gather(%grid, %i1)",
    "const %z: i64[] = -1 %y = Gather(%five, %z)",
    "%y = Gather(%grid, %r) {axis = -1}",
    "%y = GatherElements(%row, %row) {axis = 1}",
    "const %z: i64[1, 2] = [[0, 1]] %y = GatherElements(%m, %z) {axis = -1}",
    "const %z: i64[2, 2] = [[0, 1], [3, 2]] %y = GatherND(%grid, %z)",
    "const %z: i64[3, 1] = [[0], [1], [2]] %y = GatherND(%grid, %z)",
    "%y = Transpose(%grid)",
    "%y = Flatten(%grid)",
    "const %z: i64[1] = [0] %y = Squeeze(%row, %z)",
    "const %z: i64[3] = [0, 0, 1] %y = Reshape(%grid, %z)",
    "const %z: i64[1] = [-1] %y = Reshape(%m, %z)",
    "%y = Identity(%grid)",
]


@pytest.mark.parametrize("lines", MOVED)
def test_ops_that_move(lines: str) -> None:
    check(lines)


COMPUTED = [
    "%y = Size(%five)",
    "%y = Shape(%m) {start = 1}",
    "%y = Shape(%m) {end = 1}",
    "%y = Shape(%m) {start = -1}",
    "%z = Shape(%five) %y = ConstantOfShape(%z)",
    "%z = Shape(%m) %y = ConstantOfShape(%z) {value = i64[1] [7]}",
    "const %c: i64[] = 3 const %d: i64[] = -2 const %z: i64[] = -5 %y = Range(%c, %z, %d)",
    "%y = Max(%grid, %grid)",
    "const %c: i64[] = -1 %y = Max(%c, %row)",
    "const %c: i64[] = -1 %y = Min(%c, %row)",
    "%y = Abs(%grid)",
    "%y = Abs(%row)",
    "%y = Neg(%grid)",
    "const %c: f32[] = -1.5 %y = Neg(%c)",
    "const %c: f32[] = -1.5 %y = Abs(%c)",
    "const %c: f32[] = -1.5 %y = Floor(%c)",
    "const %c: f32[] = -1.5 %y = Ceil(%c)",
    "const %c: f32[] = -1.5 %y = Exp(%c)",
    "const %c: f32[] = 2.5 %y = Sqrt(%c)",
    "const %c: f32[] = 2.5 %y = Reciprocal(%c)",
    "const %c: f32[] = 2.5 const %z: f32[] = 3.0 %y = Pow(%c, %z)",
    "const %c: f32[] = 2.5 const %z: f32[] = 0.1 %y = Add(%c, %z)",
    "const %c: f32[] = 2.5 const %z: f32[] = 0.1 %y = Sub(%c, %z)",
    "const %c: f32[] = 2.5 const %z: f32[] = 0.1 %y = Mul(%c, %z)",
    "const %c: f32[] = 2.5 const %z: f32[] = 0.1 %y = Div(%c, %z)",
    "const %c: f32[] = 2.5 const %z: f32[] = 0.0 %y = Div(%c, %z)",
    "const %c: i64[] = 7 const %z: i64[] = 2 %y = Div(%c, %z)",
    "const %c: i64[] = 6 const %z: i64[] = 2 %y = Div(%c, %z)",
    "%y = Mul(%row, %column)",
    "const %c: f32[] = nan %y = IsNaN(%c)",
    "const %c: f32[] = inf %y = IsNaN(%c)",
    "const %c: f32[] = 2.0 %y = IsNaN(%c)",
    "%y = Trilu(%grid)",
    "%y = Trilu(%grid) {upper = 0}",
    "const %c: i64[] = 1 %y = Trilu(%grid, %c)",
    "const %c: i64[] = -1 %y = Trilu(%grid, %c) {upper = 0}",
    "%z = Less(%row, %column) %y = Trilu(%z)",
    "%w = ConstantOfShape(%dims) {value = i64[1] [3]} %y = CumSum(%w, %i1)",
    "%y = Less(%row, %column)",
    "%y = LessOrEqual(%row, %column)",
    "%y = Greater(%row, %column)",
    "%y = GreaterOrEqual(%row, %column)",
    "%y = Equal(%row, %column)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = Less(%z, %c)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = LessOrEqual(%z, %c)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = Greater(%z, %c)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = GreaterOrEqual(%z, %c)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = Less(%c, %z)",
    "%z = Abs(%grid) const %c: i64[] = 2 %y = LessOrEqual(%c, %z)",
    "const %c: f32[] = 0.5 const %z: f32[] = 0.5 %y = Less(%c, %z)",
    "const %c: f32[] = 0.5 const %z: f32[] = 0.5 %y = LessOrEqual(%c, %z)",
    "const %c: f32[] = 0.5 const %z: f32[] = 0.5 %y = Equal(%c, %z)",
    "%y = Equal(%m, %i0)",
    "%y = Equal(%i0, %m)",
    "%z = Cast(%m) {to = 9} %y = Not(%z)",
    "%y = Cast(%grid) {to = 9}",
    "%y = Cast(%row) {to = 1}",
    "%z = Less(%row, %column) %y = Cast(%z) {to = 1}",
    "const %c: f32[] = 2.7 %y = Cast(%c) {to = 7}",
    "const %c: f32[] = -2.7 %y = Cast(%c) {to = 7}",
    "const %c: f32[] = 2.7 %y = Cast(%c) {to = 10}",
    "const %c: f32[] = 2.7 %y = Cast(%c) {to = 9}",
    "%y = CastLike(%row, %x)",
    "%z = Less(%row, %column) %y = Where(%z, %row, %column)",
    "const %c: bool[] = true %y = Where(%c, %row, %m)",
    "const %c: bool[] = false %y = Where(%c, %m, %row)",
    "%z = Less(%row, %column) %w = Greater(%row, %column) %y = Xor(%z, %w)",
    "%z = Less(%row, %column) %w = Greater(%row, %column) %y = Or(%z, %w)",
    "%z = LessOrEqual(%row, %column) %w = GreaterOrEqual(%row, %column) %y = And(%z, %w)",
    "const %zero: f32[] = 0.0 %y = Add(%x, %zero)",
    "const %zero: f32[] = 0.0 %y = Add(%zero, %x)",
    "const %one: f32[] = 1.0 %y = Mul(%one, %x)",
    "const %one: f32[] = 1.0 %y = Div(%x, %one)",
    "const %zero: f32[] = 0.0 %y = Sub(%x, %zero)",
    "%y = Dropout(%x)",
]


@pytest.mark.parametrize("lines", COMPUTED)
def test_ops_that_compute(lines: str) -> None:
    check(lines)


PARTLY = [
    # a formula that the first and the long piece follow; by numbers only as far as sizes are known
    ("%p = Add(%r, %i1) %y = Concat(%a0, %p) {axis = 0}", True, False),
    ("%l = Sub(%r, %i1) const %z: i64[1] = [-2] %y = Concat(%z, %l) {axis = 0}", True, False),
    ("%p = Add(%r, %i1) %y = Concat(%a0, %p, %a1) {axis = 0}", False, False),
    ("const %z: i64[1] = [2] %y = Concat(%z, %r) {axis = 0}", False, False),
    # no formula gives these indices
    ("const %z: i64[2] = [-1, 0] %y = Gather(%five, %z)", False, True),
    ("const %z: i64[3] = [3, 0, 1] %y = Gather(%r, %z)", False, True),
    # an index on either side of a size
    ("const %c: i64[] = 2 %y = Max(%row, %c)", False, True),
    ("const %c: i64[] = 2 %y = Min(%row, %c)", False, True),
    # a size that may be smaller than the start
    ("const %c: i64[1] = [-3] const %z: i64[1] = [9] %y = Slice(%r, %c, %z)", False, False),
    ("const %c: i64[1] = [4] const %z: i64[1] = [-9] const %t: i64[1] = [-1]"
     " %y = Slice(%five, %c, %z, %a0, %t)", False, False),
    ("%y = IsNaN(%x)", False, False),
    ("%y = Add(%x, %x)", False, False),
    ("const %two: f32[] = 2.0 %y = Mul(%x, %two)", False, False),
    ("%y = Cast(%x) {to = 7}", False, False),
    ("%y = Sqrt(%x)", False, False),
    ("const %c: f32[] = -2.0 const %z: f32[] = 3.0 %y = Pow(%c, %z)", False, False),
    ("%y = CumSum(%m, %i1)", False, False),
    ("%y = CumSum(%r, %i0)", False, False),
    ("%w = ConstantOfShape(%dims) %y = CumSum(%w, %i1) {reverse = 1}", False, False),
    ("%w = ConstantOfShape(%dims) %y = CumSum(%w, %i1) {exclusive = 1}", False, False),
    ("const %c: i64[] = -7 const %z: i64[] = 2 %y = Div(%c, %z)", False, False),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "symbols", "numbers"), PARTLY)
def test_what_is_left_alone(lines: str, symbols: bool, numbers: bool) -> None:
    check(lines, symbols=symbols, numbers=numbers)
