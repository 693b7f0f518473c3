"""Spellings of attention: each is found, with its attributes, and computes what it did."""

from __future__ import annotations

import pytest
from attention_help import AttentionMaker, assert_close, check, flash, fuse, random_feeds, run
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 2, "s": 5, "t": 7}

HEAD = """
  input %q: f32[b, 4, s, 8]
  input %k: f32[b, 4, t, 8]
  input %v: f32[b, 4, t, 8]
  const %half: f32[] = 0.5
  const %three: f32[] = 3.0
"""
TAIL = """
  %p = Softmax(%scores) {axis = -1}
  %out = MatMul(%p, %v)
  return %out
"""
TURN = "%kt = Transpose(%k) {perm = [0, 1, 3, 2]}"


def only(text: str, opset: int = 17, **options: object) -> AttentionSite:
    """The one site of a graph with this body, which must be fused and right."""
    (site,) = check(f"graph (opset {opset}) {{ {text} }}", SIZES, **options)  # type: ignore[arg-type]
    assert site.fused, site.reason
    return site


SCALES = [
    ("%scores = MatMul(%q, %kt)", 1.0),
    ("%m = MatMul(%q, %kt) %scores = Mul(%m, %half)", 0.5),
    ("%m = MatMul(%q, %kt) %scores = Mul(%half, %m)", 0.5),
    ("%m = MatMul(%q, %kt) %scores = Div(%m, %three)", 1 / 3),
    ("%m = MatMul(%q, %kt) %n = Neg(%m) %scores = Mul(%n, %half)", -0.5),
    ("%a = Mul(%half, %q) %scores = MatMul(%a, %kt)", 0.5),
    ("%a = Div(%kt, %three) %scores = MatMul(%q, %a)", 1 / 3),
    (
        "%a = Mul(%q, %half) %c = Mul(%half, %kt) %m = MatMul(%a, %c) %scores = Div(%m, %three)",
        0.25 / 3,
    ),
    (
        "const %c: f32[1, 1, 1, 1] = [[[[0.2]]]] %m = MatMul(%q, %kt) %scores = Mul(%c, %m)",
        0.2,
    ),
]


@pytest.mark.parametrize(("body", "scale"), SCALES)
def test_the_scale_is_read_wherever_it_is(body: str, scale: float) -> None:
    site = only(f"{HEAD} {TURN} {body} {TAIL}")
    assert site.scale == pytest.approx(scale)
    assert (site.q_heads, site.kv_heads, site.head_dim, site.v_head_dim) == (4, 4, 8, 8)
    assert (site.mask, site.window, site.softcap) == ("none", (-1, -1), None)


def test_a_scale_computed_from_the_head_size_at_run_time() -> None:
    site = only(f"""{HEAD} {TURN}
      %d = Shape(%q) const %last: i64[] = -1 %w = Gather(%d, %last) %f = Cast(%w) {{to = 1}}
      %r = Sqrt(%f) const %one: f32[] = 1.0 %inv = Div(%one, %r) %root = Sqrt(%inv)
      %a = Mul(%q, %root) %c = Mul(%kt, %root) %scores = MatMul(%a, %c) {TAIL}""")
    assert site.scale == pytest.approx(8**-0.5)


def test_a_factor_below_views_is_found() -> None:
    site = only(
        """
      input %x: f32[b, s, 32] input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 8]
      const %c: f32[] = 0.3 const %shape: i64[4] = [0, 0, 4, 8]
      %y = Mul(%x, %c) %r = Reshape(%y, %shape) %q = Transpose(%r) {perm = [0, 2, 1, 3]}
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)"""
        + TAIL
    )
    assert site.scale == pytest.approx(0.3)


@pytest.mark.parametrize("shape", ["[1, 4, 1, 1]", "[2, 1, 1, 1]", "[2, 4, 5, 1]", "[4, 1, 1]"])
def test_a_factor_per_head_or_query_multiplies_q(shape: str) -> None:
    text = f"{HEAD} input %f: f32{shape} {TURN} %m = MatMul(%q, %kt) %scores = Mul(%m, %f) {TAIL}"
    assert only(text).scale == 1.0
    divided = text.replace("Mul(%m, %f)", "Div(%m, %f)")
    assert only(divided, tolerance=1e-4).scale == 1.0


K_SPELLINGS = [
    ("f32[b, 4, t, 8]", "%kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)"),
    ("f32[b, t, 4, 8]", "%kt = Transpose(%k) {perm = [0, 2, 3, 1]} %scores = MatMul(%q, %kt)"),
    ("f32[b, 4, 8, t]", "%scores = MatMul(%q, %k)"),
    (
        "f32[b, t, 32]",
        "const %sh: i64[4] = [0, 0, 4, 8] %r = Reshape(%k, %sh) "
        "%kt = Transpose(%r) {perm = [0, 2, 3, 1]} %scores = MatMul(%q, %kt)",
    ),
    ("f32[b, 4, t, 8]", '%scores = Einsum(%q, %k) {equation = "bhid,bhjd->bhij"}'),
    ("f32[b, t, 4, 8]", '%scores = Einsum(%k, %q) {equation = "bjhd,bhid->bhij"}'),
    (
        "f32[b, 4, t, 8]",
        "%qt = Transpose(%q) {perm = [0, 1, 3, 2]} %m = MatMul(%k, %qt) "
        "%scores = Transpose(%m) {perm = [0, 1, 3, 2]}",
    ),
]


@pytest.mark.parametrize(("kind", "body"), K_SPELLINGS)
def test_k_in_any_layout(kind: str, body: str) -> None:
    site = only(f"""
      input %q: f32[b, 4, s, 8] input %k: {kind} input %v: f32[b, 4, t, 8] {body} {TAIL}""")
    assert (site.q_heads, site.kv_heads, site.head_dim) == (4, 4, 8)


def test_softmax_over_rows_of_a_product_the_other_way_round() -> None:
    """``V^T softmax(K Q^T)`` with the softmax over the rows is attention too."""
    site = only("""
      input %q: f32[2, 4, 5, 8] input %k: f32[2, 4, 7, 8] input %v: f32[2, 4, 7, 6]
      %qt = Transpose(%q) {perm = [0, 1, 3, 2]} %m = MatMul(%k, %qt)
      %p = Softmax(%m) {axis = 2} %vt = Transpose(%v) {perm = [0, 1, 3, 2]}
      %out = MatMul(%vt, %p) return %out""")
    assert (site.q_heads, site.head_dim, site.v_head_dim) == (4, 8, 6)


GROUPS = [
    (
        "Expand",
        "const %e: i64[5] = [1, 1, 2, 1, 1] %k3 = Expand(%k2, %e) %v3 = Expand(%v2, %e)",
        2,
    ),
    ("Tile", "const %e: i64[5] = [1, 1, 2, 1, 1] %k3 = Tile(%k2, %e) %v3 = Tile(%v2, %e)", 2),
    ("Concat", "%k3 = Concat(%k2, %k2) {axis = 2} %v3 = Concat(%v2, %v2) {axis = 2}", 2),
]


@pytest.mark.parametrize(("name", "body", "groups"), GROUPS, ids=[g[0] for g in GROUPS])
def test_repeated_heads_are_grouped(name: str, body: str, groups: int) -> None:
    site = only(f"""
      input %q: f32[b, 4, s, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 8]
      const %two: i64[1] = [2] %k2 = Unsqueeze(%k, %two) %v2 = Unsqueeze(%v, %two) {body}
      const %sh: i64[4] = [0, 4, -1, 8] %k4 = Reshape(%k3, %sh) %v4 = Reshape(%v3, %sh)
      %kt = Transpose(%k4) {{perm = [0, 1, 3, 2]}} %scores = MatMul(%q, %kt)
      %p = Softmax(%scores) {{axis = -1}} %out = MatMul(%p, %v4) return %out""")
    assert (site.q_heads, site.kv_heads) == (4, groups)


def test_heads_tiled_as_a_whole_are_not_grouped_and_stay_right() -> None:
    site = only("""
      input %q: f32[b, 4, s, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 8]
      const %r: i64[4] = [1, 2, 1, 1] %k4 = Tile(%k, %r) %v4 = Tile(%v, %r)
      %kt = Transpose(%k4) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)
      %p = Softmax(%scores) {axis = -1} %out = MatMul(%p, %v4) return %out""")
    assert (site.q_heads, site.kv_heads) == (4, 4)


def test_one_kv_head_that_broadcasts() -> None:
    site = only(
        """
      input %q: f32[b, 4, s, 8] input %k: f32[b, 1, t, 8] input %v: f32[b, 1, t, 6]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)"""
        + TAIL
    )
    assert (site.q_heads, site.kv_heads, site.v_head_dim) == (4, 1, 6)


def test_a_group_axis_in_the_product() -> None:
    site = only("""
      input %q: f32[b, 6, s, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 8]
      const %sh: i64[5] = [0, 2, 3, -1, 8] %q5 = Reshape(%q, %sh)
      const %two: i64[1] = [2] %k5 = Unsqueeze(%k, %two) %v5 = Unsqueeze(%v, %two)
      %kt = Transpose(%k5) {perm = [0, 1, 2, 4, 3]} %scores = MatMul(%q5, %kt)
      %p = Softmax(%scores) {axis = -1} %o = MatMul(%p, %v5)
      const %back: i64[4] = [0, 6, -1, 8] %out = Reshape(%o, %back) return %out""")
    assert (site.q_heads, site.kv_heads) == (6, 2)


def test_the_query_heads_of_a_group_as_rows_of_one_product() -> None:
    site = only("""
      input %q: f32[b, 4, 1, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 8]
      const %sh: i64[4] = [0, 2, 2, 8] %q2 = Reshape(%q, %sh)
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q2, %kt)
      %p = Softmax(%scores) {axis = -1} %o = MatMul(%p, %v)
      const %back: i64[4] = [0, 4, 1, 8] %out = Reshape(%o, %back) return %out""")
    assert (site.q_heads, site.kv_heads) == (4, 2)


def test_a_batched_product_over_batch_times_heads() -> None:
    site = only("""
      input %q: f32[2, 4, 5, 8] input %k: f32[2, 4, 7, 8] input %v: f32[2, 4, 7, 8]
      input %bias: f32[8, 5, 7]
      const %sq: i64[3] = [8, 5, 8] const %sk: i64[3] = [8, 7, 8]
      %q3 = Reshape(%q, %sq) %k3 = Reshape(%k, %sk) %v3 = Reshape(%v, %sk)
      %kt = Transpose(%k3) {perm = [0, 2, 1]} %m = MatMul(%q3, %kt) %scores = Add(%bias, %m)
      %p = Softmax(%scores) {axis = 2} %o = MatMul(%p, %v3)
      const %so: i64[4] = [2, 4, 5, 8] %out = Reshape(%o, %so) return %out""")
    assert (site.q_heads, site.kv_heads, site.mask) == (4, 4, "additive")


def test_attention_without_heads_or_batch() -> None:
    site = only("""
      input %q: f32[s, 8] input %k: f32[t, 8] input %v: f32[t, 6]
      %m = Gemm(%q, %k) {transB = 1, alpha = 0.25}
      %p = Softmax(%m) {axis = 1} %out = MatMul(%p, %v) return %out""")
    assert (site.q_heads, site.scale) == (1, pytest.approx(0.25))


def test_k_and_v_shared_by_the_whole_batch() -> None:
    source = """graph (opset 17) {
      input %q: f32[b, 4, s, 8] input %k: f32[1, 4, t, 8] input %v: f32[1, 4, t, 8]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)
      %p = Softmax(%scores) {axis = -1} %out = MatMul(%p, %v) return %out }"""
    assert check(source, SIZES)[0].fused
    graph = parse(source)
    fuse(graph)
    assert flash(graph).inputs == ("q", "k", "v")


def test_queries_shared_by_the_whole_batch_are_broadcast() -> None:
    assert only(
        """
      input %q: f32[1, 4, 5, 8] input %k: f32[2, 4, 7, 8] input %v: f32[2, 4, 7, 8]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %scores = MatMul(%q, %kt)"""
        + TAIL
    ).fused


SOFTMAXES = [
    "%t = ReduceMax(%scores) {axes = [-1], keepdims = 1} %d = Sub(%scores, %t) %e = Exp(%d) "
    "%n = ReduceSum(%e, %last) %p = Div(%e, %n)",
    "%e = Exp(%scores) %n = ReduceSum(%e, %last) %r = Reciprocal(%n) %p = Mul(%r, %e)",
    "%l = LogSoftmax(%scores) {axis = -1} %p = Exp(%l)",
    "%p0 = Softmax(%scores) {axis = 3} %nan = IsNaN(%p0) %ok = Not(%nan) "
    "const %zero: f32[] = 0.0 %p = Where(%ok, %p0, %zero)",
    "%p0 = Softmax(%scores) {axis = -1} %p1 = Dropout(%p0) %p2 = Identity(%p1) "
    "%p = Cast(%p2) {to = 1}",
]


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_softmax_in_every_spelling(softmax: str) -> None:
    assert only(f"""{HEAD} {TURN} const %last: i64[1] = [-1] %scores = MatMul(%q, %kt)
      {softmax} %out = MatMul(%p, %v) return %out""").fused


@pytest.mark.parametrize(("opset", "axis"), [(11, 3), (12, -1), (13, -1)])
def test_the_axis_of_softmax_by_version(opset: int, axis: int) -> None:
    text = f"""{HEAD} {TURN} %scores = MatMul(%q, %kt) %p = Softmax(%scores) {{axis = {axis}}}
      %out = MatMul(%p, %v) return %out"""
    assert only(text, opset=opset).fused


def test_softcap_in_any_order_of_operands() -> None:
    site = only(f"""{HEAD} {TURN} input %bias: f32[b, 1, s, t] const %cap: f32[] = 5.0
      const %inv: f32[] = 0.2 %m = MatMul(%q, %kt) %a = Mul(%m, %half) %c = Mul(%inv, %a)
      %t = Tanh(%c) %d = Mul(%cap, %t) %scores = Add(%bias, %d) {TAIL}""")
    assert (site.softcap, site.scale) == (pytest.approx(5.0), pytest.approx(0.5))


def test_a_shift_that_is_the_same_for_every_key_is_nothing() -> None:
    site = only(f"{HEAD} {TURN} %m = MatMul(%q, %kt) %scores = Add(%m, %three) {TAIL}")
    assert site.mask == "none"


def test_half_precision_with_a_float32_softmax() -> None:
    text = """graph (opset 17) {
      input %q: f16[b, 4, s, 8] input %k: f16[b, 4, t, 8] input %v: f16[b, 4, t, 8]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
      const %c: f16[] = 0.25 %a = Mul(%m, %c) %f = Cast(%a) {to = 1}
      %p = Softmax(%f) {axis = -1} %h = Cast(%p) {to = 10} %out = MatMul(%h, %v) return %out }"""
    (site,) = check(text, SIZES, tolerance=4e-3)
    assert site.fused
    graph = parse(text)
    fuse(graph)
    assert flash(graph).inputs == ("q", "k", "v"), "no casts are needed around the fused op"


def test_products_in_float32_of_half_precision_operands() -> None:
    text = """graph (opset 17) {
      input %q: f16[b, 4, s, 8] input %k: f16[b, 4, t, 8] input %v: f16[b, 4, t, 8]
      %q32 = Cast(%q) {to = 1} %k32 = Cast(%k) {to = 1} %v32 = Cast(%v) {to = 1}
      %kt = Transpose(%k32) {perm = [0, 1, 3, 2]} %m = MatMul(%q32, %kt)
      %p = Softmax(%m) {axis = -1} %out = MatMul(%p, %v32) return %out }"""
    (site,) = check(text, SIZES)
    assert site.fused


def test_several_attentions_that_feed_one_another() -> None:
    text = """graph (opset 17) {
      input %q: f32[b, 4, s, 8] input %k: f32[b, 4, s, 8] input %v: f32[b, 4, s, 8]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
      %p = Softmax(%m) {axis = -1} %o = MatMul(%p, %v)
      %ot = Transpose(%o) {perm = [0, 1, 3, 2]} %m2 = MatMul(%q, %ot)
      %p2 = Softmax(%m2) {axis = -1} %out = MatMul(%p2, %o) return %out, %o }"""
    sites = check(text, SIZES)
    assert [s.fused for s in sites] == [True, True]


def test_attention_within_a_branch() -> None:
    text = """graph (opset 17) {
      input %q: f32[b, 4, s, 8] input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 8]
      input %c: bool[]
      %out: f32[b, 4, s, 8] = If(%c) {then_branch = graph @then {
        outer %q: f32[b, 4, s, 8] outer %k: f32[b, 4, t, 8] outer %v: f32[b, 4, t, 8]
        %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
        %p = Softmax(%m) {axis = -1} %o = MatMul(%p, %v) return %o
      }, else_branch = graph @else { outer %q: f32[b, 4, s, 8] %n = Neg(%q) return %n }}
      return %out }"""
    graph = parse(text)
    from gecompiler.passes.attention.fuse import FuseAttention
    from gecompiler.passes.pass_base import PassContext

    context = PassContext()
    assert FuseAttention().run(graph, context) == 1
    graph.verify()
    assert [s.fused for s in context.sites] == [True]
    (body, _) = graph.op("out").bodies
    assert [op.op_type for op in body.ops] == ["FlashAttention"]


def test_the_shape_of_scores_may_be_asked_for() -> None:
    text = f"""graph (opset 17) {{ {HEAD} {TURN} %scores = MatMul(%q, %kt)
      %shape = Shape(%scores) %p = Softmax(%scores) {{axis = -1}} %out = MatMul(%p, %v)
      return %out, %shape }}"""
    source, graph = parse(text), parse(text)
    (site,) = fuse(graph)
    assert site.fused
    assert not any(op.op_type == "MatMul" for op in graph.ops)
    feeds = random_feeds(source, SIZES)
    assert_close(run(source, feeds), run(graph, feeds))


def test_one_softmax_for_several_products() -> None:
    """Differential attention multiplies the same weights by each half of V."""
    text = f"""graph (opset 17) {{ {HEAD} {TURN} input %w: f32[1, 4, t, 3]
      %scores = MatMul(%q, %kt) %p = Softmax(%scores) {{axis = -1}} %u = Mul(%w, %half)
      %a = MatMul(%p, %v) %c = MatMul(%p, %u) %d = MatMul(%p, %w)
      %out = Transpose(%c) {{perm = [0, 2, 1, 3]}} %e = Neg(%d) return %a, %out, %e }}"""
    (site,) = check(text, SIZES)
    assert site.fused, site.reason
    assert (site.head_dim, site.v_head_dim) == (8, 14)


def test_several_products_keep_their_shared_key_heads() -> None:
    text = f"""graph (opset 17) {{ {HEAD} {TURN}
      input %w: f32[b, 2, t, 8] input %u: f32[b, 2, t, 4] input %g: f32[b, 2, t, 8]
      const %five: i64[5] = [1, 1, 2, 1, 1] const %ax: i64[1] = [2]
      const %s4: i64[4] = [0, 4, -1, 8] const %s3: i64[4] = [0, 4, -1, 4]
      %w5 = Unsqueeze(%w, %ax) %wx = Expand(%w5, %five) %wr = Reshape(%wx, %s4)
      %u5 = Unsqueeze(%u, %ax) %ux = Expand(%u5, %five) %ur = Reshape(%ux, %s3)
      %g5 = Unsqueeze(%g, %ax) %gx = Expand(%g5, %five) %gr = Reshape(%gx, %s4)
      %gt = Transpose(%gr) {{perm = [0, 1, 3, 2]}} %scores = MatMul(%q, %gt)
      %p = Softmax(%scores) {{axis = -1}} %a = MatMul(%p, %wr) %c = MatMul(%p, %ur)
      return %a, %c }}"""
    (site,) = check(text, SIZES)
    assert site.fused, site.reason
    assert (site.q_heads, site.kv_heads, site.v_head_dim) == (4, 2, 12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_attention_in_a_random_spelling(seed: int) -> None:
    maker = AttentionMaker(seed)
    rough = "10000" in maker.text  # sums with -1e4 keep few digits
    (site,) = check(maker.text, maker.sizes, tolerance=3e-3 if rough else 2e-5)
    if not site.fused:
        assert "scores may reach" in site.reason or 1 in maker.sizes.values(), site.reason
        return
    if 1 not in maker.sizes.values():  # a single query or key tells little of the layout
        assert (site.q_heads, site.kv_heads) == (maker.heads, maker.groups)
    assert site.scale == pytest.approx(maker.scale, rel=1e-5)
    assert site.softcap == (None if maker.softcap is None else pytest.approx(maker.softcap))
