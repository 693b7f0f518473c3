"""Attention of halves that is computed in float32: the casts on either side go into the op."""

from __future__ import annotations

import pytest
from attention_help import check, flash, fuse

from gecompiler.ir import parse
from gecompiler.ir.graph import Graph
from gecompiler.ir.types import DType

SIZES = {"b": 2, "s": 3, "t": 5}
WIDE = """%qw = Cast(%q) {to = 1} %kw = Cast(%k) {to = 1} %vw = Cast(%v) {to = 1}
  %kt = Transpose(%kw) {perm = [0, 1, 3, 2]} %m = MatMul(%qw, %kt)
  %p = Softmax(%m) {axis = -1} %o = MatMul(%p, %vw)"""


def text(end: str, kinds: str = "f16 f16 f16") -> str:
    q, k, v = kinds.split()
    return f"""graph (opset 17) {{ input %q: {q}[b, 4, s, 8] input %k: {k}[b, 4, t, 8]
      input %v: {v}[b, 4, t, 8] {WIDE} {end} }}"""


def fused(source: str) -> Graph:
    (site,) = check(source, SIZES, tolerance=2e-3)
    assert site.fused, site.reason
    graph = parse(source)
    fuse(graph)
    return graph


def types(graph: Graph) -> list[DType | None]:
    op = flash(graph)
    found = [graph.tensor(name) for name in (*op.inputs[:3], op.outputs[0])]
    return [None if tensor is None else tensor.dtype for tensor in found]


def test_a_result_that_is_rounded_is_made_narrow() -> None:
    graph = fused(text("%y = Cast(%o) {to = 10} return %y"))
    assert types(graph) == [DType.F16] * 4
    assert not [op for op in graph.ops if op.op_type == "Cast"]


@pytest.mark.parametrize(
    ("end", "kinds"),
    [
        ("return %o", "f16 f16 f16"),
        ("%y = Cast(%o) {to = 10} return %y, %o", "f16 f16 f16"),
        ("%y = Cast(%o) {to = 10} %z = Neg(%o) return %y, %z", "f16 f16 f16"),
        ("%y = Neg(%o) return %y", "f16 f16 f16"),
        ("%y = Cast(%o) {to = 11} return %y", "f16 f16 f16"),
        ("%y = Cast(%o) {to = 10} return %y", "f32 f16 f16"),
        ("%y = Cast(%o) {to = 10} return %y", "f16 f16 f32"),
        ("%y = Cast(%o) {to = 10} return %y", "f32 f32 f32"),
    ],
)
def test_a_result_that_is_wanted_wide_stays_so(end: str, kinds: str) -> None:
    assert types(fused(text(end, kinds)))[3] is DType.F32
