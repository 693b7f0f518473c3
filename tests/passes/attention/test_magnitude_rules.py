"""How large numbers may be, op by op: what is proven, and that it holds of what is computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_help import run

from gecompiler.ir import parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention import magnitudes
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.magnitudes import magnitude

INF = math.inf
HEAD = """input %x: f32[2, 3] input %t: bool[2, 3] input %i: i8[2, 3] input %u: u8[2, 3]
  input %n: i64[2, 3]
  const %a: f32[2, 3] = [[1.0, -3.0, 2.0], [0.5, 0.0, -2.5]]
  const %w: f32[3] = [4.0, -0.25, 1.0]
  const %s: f32[] = -5.0 const %two: f32[] = 2.0 const %nought: f32[] = 0.0
  const %z: i64[1] = [0] const %o: i64[1] = [1] const %shape: i64[2] = [3, 2]
  const %p: i64[4] = [0, 1, 0, 0]
"""
RULES = [
    ("%y = Identity(%a)", 3.0),
    ("%y = Identity(%x)", INF),
    ("%y = Neg(%a)", 3.0),
    ("%y = Abs(%a)", 3.0),
    ("%y = Relu(%a)", 3.0),
    ("%y = Transpose(%a)", 3.0),
    ("%y = Reshape(%a, %shape)", 3.0),
    ("%y = Gather(%a, %z)", 3.0),
    ("%y = Slice(%a, %z, %o)", 3.0),
    ("%y = ReduceMax(%a)", 3.0),
    ("%y = ReduceMean(%a)", 3.0),
    ("%y = ReduceSum(%a)", INF),
    ("%y = Add(%a, %w)", 7.0),
    ("%y = Sub(%w, %a)", 7.0),
    ("%y = Sum(%a, %w, %a)", 10.0),
    ("%y = Add(%a, %x)", INF),
    ("%y = Mul(%a, %w)", 12.0),
    ("%y = Mul(%a, %nought)", 0.0),
    ("%y = Mul(%nought, %a)", 0.0),
    ("%y = Mul(%x, %nought)", INF),  # infinity times 0
    ("%y = Div(%a, %two)", 1.5),
    ("%y = Div(%a, %s)", 0.6),
    ("%y = Div(%a, %nought)", INF),
    ("%y = Div(%a, %w)", INF),
    ("%y = Max(%a, %w)", 4.0),
    ("%y = Min(%w, %a)", 4.0),
    ("%y = Max(%a, %x)", INF),
    ("%y = Concat(%a, %a) {axis = 0}", 3.0),
    ("%y = Where(%t, %a, %s)", 5.0),
    ("%y = Where(%t, %s, %a)", 5.0),
    ("%y = Where(%t, %a, %x)", INF),
    ("%y = Tanh(%x)", 1.0),
    ("%y = Softmax(%x)", 1.0),
    ("%y = Shape(%x)", 2.0**40),
    ("%y = Sqrt(%a)", 3.0),
    ("%q = Tanh(%x) %y = Sqrt(%q)", 1.0),
    ("%y = Pow(%a, %two)", 9.0),
    ("%y = Pow(%a, %s)", INF),
    ("%y = Pow(%a, %w)", INF),
    ("%y = Pow(%x, %two)", INF),
    ("%q = Tanh(%x) %y = Pow(%q, %two)", 1.0),
    ("const %l: f32[] = 1e4 %y = Pow(%a, %l)", INF),
    ("%y = Clip(%x, %s, %two)", 5.0),
    ("%y = Clip(%a, %s)", 5.0),
    ("%y = Clip(%a, _, %two)", 3.0),
    ("%y = Clip(%x, %s)", INF),
    ("%y = Pad(%a, %p)", 3.0),
    ("%y = Pad(%a, %p, %s)", 5.0),
    ('%y = Pad(%a, %p, %s) {mode = "edge"}', 3.0),
    ("%y = Pad(%x, %p, %s)", INF),
    ("const %at: i64[1, 1] = [[0]] const %new: f32[1, 3] = [[7.0, 0.0, 1.0]]"
     " %y = ScatterND(%a, %at, %new)", 7.0),
    ("const %at: i64[1, 1] = [[0]] const %new: f32[1, 3] = [[0.0, 0.0, 1.0]]"
     " %y = ScatterND(%a, %at, %new)", 3.0),
    ("const %at: i64[1, 1] = [[0]] const %new: f32[1, 3] = [[7.0, 0.0, 1.0]]"
     ' %y = ScatterND(%a, %at, %new) {reduction = "add"}', INF),
    ("%y = Exp(%a)", INF),
    ("%y = Identity(%t)", 1.0),
    ("%y = Identity(%i)", 128.0),
    ("%y = Identity(%u)", 256.0),
    ("%y = Identity(%n)", 2.0**63),
    ("%y = Cast(%i) {to = 1}", 128.0),
    ("%y = Cast(%t) {to = 1}", 1.0),
    ("%q = Cast(%i) {to = 1} %y = Mul(%q, %s)", 640.0),
    ("const %l: f32[] = 3e38 %y = Add(%l, %l)", INF),  # it overflows
    ("const %l: f32[] = 3e38 %y = Sub(%l, %nought)", 3e38),
    ("const %l: f32[] = nan %y = Identity(%l)", INF),
    ("const %e: f32[0] = [] %y = Identity(%e)", 0.0),
    ("const %l: i8[] = 100 %y = Add(%l, %l)", 128.0),  # it wraps
    ("const %l: i8[] = 60 %y = Add(%l, %l)", 120.0),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "bound"), RULES)
def test_bounds(lines: str, bound: float) -> None:
    graph = parse(f"graph (opset 18) {{ {HEAD} {lines} return %y }}")
    infer_types(graph)
    found = magnitude(Elements(graph), "y")
    assert found == pytest.approx(bound, rel=1e-7)
    draw = np.random.default_rng(1)
    for _ in range(4):
        feeds = {
            "x": (draw.standard_normal((2, 3)) * 1e3).astype(np.float32),
            "t": draw.random((2, 3)) < 0.5,
            "i": draw.integers(-128, 128, (2, 3)).astype(np.int8),
            "u": draw.integers(0, 256, (2, 3)).astype(np.uint8),
            "n": draw.integers(-(2**62), 2**62, (2, 3)),
        }
        with np.errstate(all="ignore"):
            y = np.asarray(run(graph, {n: feeds[n] for n in graph.inputs})["y"])
        largest = np.max(np.abs(y.astype(np.float64)), initial=0.0)
        assert not largest > found * (1 + 1e-6)


def test_large_constants_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse("graph (opset 18) { const %a: f32[3] = [1.0, 2.0, 3.0] return %a }")
    monkeypatch.setattr(magnitudes, "MAX_ELEMENTS", 3)
    assert magnitude(Elements(graph), "a") == 3.0
    monkeypatch.setattr(magnitudes, "MAX_ELEMENTS", 2)
    assert magnitude(Elements(graph), "a") == INF
