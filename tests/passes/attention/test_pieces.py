"""Keys and values in pieces, and factors per key, are one attention."""

from __future__ import annotations

import pytest
from attention_help import check

SIZES = {"b": 2, "s": 5, "t": 4, "u": 3}
ONE = """input %q: f32[b, 4, s, 8] input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 6]
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]}"""
TWO = f"""{ONE} input %k2: f32[b, 4, u, 8] input %v2: f32[b, 4, u, 6]
  %kt2 = Transpose(%k2) {{perm = [0, 1, 3, 2]}} %s1 = MatMul(%q, %kt) %s2 = MatMul(%q, %kt2)"""
SOFTMAX = "%p = Softmax(%x) {axis = -1}"
SLICES = """%shape = Shape(%kt) const %at: i64[1] = [3] %first = Gather(%shape, %at) {axis = 0}
  const %zero: i64[1] = [0] const %end: i64[1] = [9223372036854775807]
  %p1 = Slice(%p, %zero, %first, %at) %p2 = Slice(%p, %first, %end, %at)"""
SUM = "%o1 = MatMul(%p1, %v) %o2 = MatMul(%p2, %v2) %out = Add(%o2, %o1) return %out"
WHOLE = f"{SOFTMAX} %out = MatMul(%p, %v) return %out"

PIECES = {
    "plain": "%x = Concat(%s1, %s2) {axis = -1}",
    "a scale each": """const %c: f32[] = 0.3 const %d: f32[1] = [0.3] %a1 = Mul(%s1, %c)
      %a2 = Mul(%d, %s2) %x = Concat(%a1, %a2) {axis = 3}""".replace("%d, %s2", "%s2, %d"),
    "a bias each": """input %m1: f32[b, 1, s, t] input %m2: f32[b, 1, 1, u]
      %a1 = Add(%s1, %m1) %a2 = Add(%s2, %m2) %x = Concat(%a1, %a2) {axis = 3}""",
    "a bias on all": """input %m: f32[b, 1, s, t + u] const %c: f32[] = 0.3
      %y = Concat(%s1, %s2) {axis = 3} %z = Mul(%y, %c) %x = Add(%z, %m)""",
    "a softcap each": """const %c: f32[] = 5.0 %d1 = Div(%s1, %c) %d2 = Div(%s2, %c)
      %t1 = Tanh(%d1) %t2 = Tanh(%d2) %a1 = Mul(%t1, %c) %a2 = Mul(%t2, %c)
      %x = Concat(%a1, %a2) {axis = 3}""",
}


@pytest.mark.parametrize("opset", [11, 13, 18, 23])
@pytest.mark.parametrize("name", PIECES)
def test_keys_in_pieces(name: str, opset: int) -> None:
    (site,) = check(
        f"graph (opset {opset}) {{ {TWO} {PIECES[name]} {SOFTMAX} {SLICES} {SUM} }}", SIZES
    )
    assert site.fused, site.reason
    assert site.q_heads == 4
    assert site.mask == ("additive" if "bias" in name else "none")
    assert site.scale == pytest.approx(0.3 if "scale" in name or "on all" in name else 1.0)


SEVEN = """input %q: f32[b, 4, s, 8] input %k: f32[b, 4, 7, 8] input %v: f32[b, 4, 3, 6]
  input %v2: f32[b, 4, 4, 6] %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %x = MatMul(%q, %kt)"""
SPLIT = "const %sizes: i64[2] = [3, 4] %p1, %p2 = Split(%p, %sizes) {axis = -1}"


def test_values_in_pieces_only() -> None:
    (site,) = check(f"graph (opset 13) {{ {SEVEN} {SOFTMAX} {SPLIT} {SUM} }}", SIZES)
    assert site.fused, site.reason


NO_PIECES = {
    "pieces that overlap": (
        """const %z: i64[1] = [0] const %f: i64[1] = [4] const %th: i64[1] = [3]
        const %e: i64[1] = [7] %p1 = Slice(%p, %z, %th, %th) %p2 = Slice(%p, %z, %f, %th)""",
        "are used by p1, p2",
    ),
    "a piece that is left out": (
        """const %z: i64[1] = [0] const %th: i64[1] = [3] const %e: i64[1] = [6]
        const %g: i64[1] = [2] %p1 = Slice(%p, %z, %th, %th) %p2 = Slice(%p, %g, %e, %th)""",
        "are used by p1, p2",
    ),
}


@pytest.mark.parametrize("name", NO_PIECES)
def test_what_are_no_pieces_is_refused(name: str) -> None:
    parts, reason = NO_PIECES[name]
    (site,) = check(f"graph (opset 13) {{ {SEVEN} {SOFTMAX} {parts} {SUM} }}", SIZES)
    assert not site.fused
    assert reason in site.reason


def test_pieces_that_are_not_added_are_refused() -> None:
    body = f"{SEVEN} {SOFTMAX} {SPLIT} {SUM}".replace("Add(%o2, %o1)", "Sub(%o2, %o1)")
    (site,) = check(f"graph (opset 13) {{ {body} }}", SIZES)
    assert not site.fused
    assert "is not added to the other pieces" in site.reason


@pytest.mark.parametrize("kind", ["Relu", "Sigmoid"])
def test_pieces_made_in_ways_that_cannot_be_joined_are_refused(kind: str) -> None:
    body = f"%r = {kind}(%s2) %x = Concat(%s1, %r) {{axis = -1}}"
    sites = check(f"graph (opset 13) {{ {TWO} {body} {SOFTMAX} {SLICES} {SUM} }}", SIZES)
    assert not any(s.fused for s in sites)


FACTORS = ["b, 1, 1, t", "t", "4, 1, t", "b, 4, 1, t", "b, 1, s, 1", "4, 1, 1", "b, 4, s, 1"]


@pytest.mark.parametrize("op", ["Mul", "Div"])
@pytest.mark.parametrize("shape", FACTORS)
def test_a_factor_per_key_or_query_goes_to_k_or_q(shape: str, op: str) -> None:
    body = f"input %f: f32[{shape}] %g = Exp(%f) %m = MatMul(%q, %kt) %x = {op}(%m, %g)"
    (site,) = check(f"graph (opset 13) {{ {ONE} {body} {WHOLE} }}", SIZES, tolerance=1e-4)
    assert site.fused, site.reason


@pytest.mark.parametrize("order", ["%s1, %s2", "%s2, %s1"])
@pytest.mark.parametrize("lead", ["b, 4, 8, t", "1, 4, 8, t", "4, 8, t"])
def test_of_two_products_one_is_a_bias(order: str, lead: str) -> None:
    body = f"""input %r: f32[{lead}] %s1 = MatMul(%q, %kt) %s2 = MatMul(%q, %r)
      const %c: f32[] = 0.2 %y = Add({order}) %x = Mul(%y, %c)"""
    (site,) = check(f"graph (opset 13) {{ {ONE} {body} {WHOLE} }}", SIZES)
    assert (site.fused, site.mask) == (True, "additive")
