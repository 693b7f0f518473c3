"""Partial softmaxes put together by log-sum-exp are one attention over all keys."""

from __future__ import annotations

import pytest
from attention_help import check

SIZES = {"b": 2, "s": 5, "t": 4, "u": 3}
SCORES = """input %q: f32[b, 4, s, 8] input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 6]
  input %k2: f32[b, 4, u, 8] input %v2: f32[b, 4, u, 6] const %c: f32[] = 0.3
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %kt2 = Transpose(%k2) {perm = [0, 1, 3, 2]}
  %m1 = MatMul(%q, %kt) %m2 = MatMul(%q, %kt2) %s1 = Mul(%m1, %c) %s2 = Mul(%c, %m2)"""
PARTS = """%p1 = Softmax(%s1) {axis = -1} %p2 = Softmax(%s2) {axis = -1}
  %o1 = MatMul(%p1, %v) %o2 = MatMul(%p2, %v2)"""
LSE = "%l1 = ReduceLogSumExp(%s1) {axes = [3]} %l2 = ReduceLogSumExp(%s2) {axes = [3]}"
BY_HAND = """%x1 = ReduceMax(%s1) {axes = [3]} %x2 = ReduceMax(%s2) {axes = [3]}
  %d1 = Sub(%s1, %x1) %d2 = Sub(%s2, %x2) %e1 = Exp(%d1) %e2 = Exp(%d2)
  const %ax: i64[1] = [3] %z1 = ReduceSum(%e1, %ax) %z2 = ReduceSum(%e2, %ax)
  %n1 = MatMul(%e1, %v) %n2 = MatMul(%e2, %v2)"""
SUM = "%a1 = Mul(%w1, %o1) %a2 = Mul(%o2, %w2) %out = Add(%a1, %a2) return %out"
BOTH = "%row = Concat(%l1, %l2) {axis = -1}"
SPLIT = "const %ones: i64[2] = [1, 1] %w1, %w2 = Split(%w, %ones) {axis = -1}"
SHIFTED = "%y1 = Sub(%l1, %top) %y2 = Sub(%l2, %top) %g1 = Exp(%y1) %g2 = Exp(%y2)"

TOGETHER = {
    "weights by a softmax": f"{PARTS} {LSE} {BOTH} %w = Softmax(%row) {{axis = -1}} {SPLIT} {SUM}",
    "weights by slices of it": f"""{PARTS} {LSE} {BOTH} %w = Softmax(%row) {{axis = -1}}
      const %z: i64[1] = [0] const %o: i64[1] = [1] const %t: i64[1] = [2] const %at: i64[1] = [3]
      %w1 = Slice(%w, %z, %o, %at) %w2 = Slice(%w, %o, %t, %at) {SUM}""",
    "weights by the sum of all": f"""{PARTS} {LSE} {BOTH}
      %all = ReduceLogSumExp(%row) {{axes = [3]}}
      %y1 = Sub(%l1, %all) %y2 = Sub(%l2, %all) %w1 = Exp(%y1) %w2 = Exp(%y2) {SUM}""",
    "divided at the end": f"""{PARTS} {LSE} %top = Max(%l1, %l2) {SHIFTED}
      %a1 = Mul(%g1, %o1) %a2 = Mul(%o2, %g2) %n = Add(%a1, %a2) %d = Add(%g1, %g2)
      %out = Div(%n, %d) return %out""",
    "never normalised before": f"""{BY_HAND} %top = Max(%x1, %x2)
      %y1 = Sub(%x1, %top) %y2 = Sub(%x2, %top) %g1 = Exp(%y1) %g2 = Exp(%y2)
      %a1 = Mul(%g1, %n1) %a2 = Mul(%n2, %g2) %n = Add(%a1, %a2)
      %j1 = Mul(%g1, %z1) %j2 = Mul(%g2, %z2) %d = Add(%j2, %j1) %out = Div(%n, %d) return %out""",
    "logarithms by hand": f"""{BY_HAND} %o1 = Div(%n1, %z1) %o2 = Div(%n2, %z2)
      %g3 = Log(%z1) %g4 = Log(%z2) %l1 = Add(%x1, %g3) %l2 = Add(%g4, %x2) %top = Max(%l1, %l2)
      {SHIFTED} %d = Add(%g2, %g1) %w1 = Div(%g1, %d) %w2 = Div(%g2, %d) {SUM}""",
}


@pytest.mark.parametrize("name", TOGETHER)
def test_partials_are_one_attention(name: str) -> None:
    (site,) = check(f"graph (opset 17) {{ {SCORES} {TOGETHER[name]} }}", SIZES)
    assert site.fused, site.reason
    assert (site.name, site.q_heads, site.mask) == ("out", 4, "none")
    assert site.scale == pytest.approx(0.3)


def test_three_partials() -> None:
    body = f"""{SCORES} input %k3: f32[b, 4, 2, 8] input %v3: f32[b, 4, 2, 6]
      %kt3 = Transpose(%k3) {{perm = [0, 1, 3, 2]}} %m3 = MatMul(%q, %kt3) %s3 = Mul(%m3, %c)
      {PARTS} {LSE} %p3 = Softmax(%s3) {{axis = -1}} %o3 = MatMul(%p3, %v3)
      %l3 = ReduceLogSumExp(%s3) {{axes = [3]}} %row = Concat(%l1, %l2, %l3) {{axis = -1}}
      %w = Softmax(%row) {{axis = -1}} const %ones: i64[3] = [1, 1, 1]
      %w1, %w2, %w3 = Split(%w, %ones) {{axis = -1}} %a1 = Mul(%w1, %o1) %a2 = Mul(%o2, %w2)
      %a3 = Mul(%w3, %o3) %a4 = Add(%a1, %a2) %out = Add(%a3, %a4) return %out"""
    (site,) = check(f"graph (opset 17) {{ {body} }}", SIZES)
    assert (site.name, site.fused) == ("out", True)


APART = {
    "weights of each other": f"""{PARTS} {LSE} {BOTH} %w = Softmax(%row) {{axis = -1}}
      {SPLIT.replace("%w1, %w2", "%w2, %w1")} {SUM}""",
    "equal weights": f"""{PARTS} const %w1: f32[1] = [0.5] const %w2: f32[1] = [0.5] {SUM}""",
    "shifts that differ": f"""{BY_HAND} %n = Add(%n1, %n2) %d = Add(%z1, %z2)
      %out = Div(%n, %d) return %out""",
    "weights of other scores": f"""{PARTS} %h1 = Neg(%s1) %l1 = ReduceLogSumExp(%h1) {{axes = [3]}}
      %l2 = ReduceLogSumExp(%s2) {{axes = [3]}} {BOTH} %w = Softmax(%row) {{axis = -1}}
      {SPLIT} {SUM}""",
}


@pytest.mark.parametrize("name", APART)
def test_what_is_no_attention_over_all_keys_keeps_its_numbers(name: str) -> None:
    sites = check(f"graph (opset 17) {{ {SCORES} {APART[name]} }}", SIZES)
    assert not any(s.fused and s.name == "out" for s in sites)
