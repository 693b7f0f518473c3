"""What is no attention, or none that can be one op: left alone, with the reason."""

from __future__ import annotations

import pytest
from attention_help import check, fuse

from gecompiler.ir import parse
from gecompiler.passes.attention.fuse import FuseAttention
from gecompiler.passes.pass_base import PassContext

SIZES = {"b": 2, "s": 5, "t": 7}
HEAD = """
  input %q: f32[b, 4, s, 8] input %k: f32[b, 4, t, 8] input %v: f32[b, 4, t, 8]
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
"""
TAIL = "%p = Softmax(%s) {axis = -1} %out = MatMul(%p, %v)"

REFUSED = [
    (
        "scores escape",
        f"{HEAD} %s = Neg(%m) {TAIL} %top = ReduceMax(%s) {{keepdims = 0}} return %out, %top",
        ["makes 's'", "top (ReduceMax)"],
    ),
    (
        "scores are an output",
        f"{HEAD} %s = Neg(%m) {TAIL} return %out, %s",
        ["makes 's', which is an output"],
    ),
    (
        "probabilities are an output",
        f"{HEAD} %s = Neg(%m) {TAIL} return %out, %p",
        ["probabilities 'p' are an output"],
    ),
    (
        "probabilities are used twice",
        f"{HEAD} %s = Neg(%m) {TAIL} %o2 = Neg(%p) return %out, %o2",
        ["probabilities 'p' are used by out, o2"],
    ),
    (
        "probabilities are changed",
        f"{HEAD} %p0 = Softmax(%m) {{axis = -1}} %p = Sqrt(%p0) %out = MatMul(%p, %v) return %out",
        ["p (Sqrt) uses the probabilities and is no product with V"],
    ),
    (
        "something is added to the probabilities",
        f"{HEAD} const %e: f32[] = 0.01 %p0 = Softmax(%m) {{axis = -1}} %p = Add(%e, %p0) "
        "%out = MatMul(%p, %v) return %out",
        ["p (Add) uses the probabilities and is no product with V"],
    ),
    (
        "scores lose their sign, below a mask",
        f"{HEAD} input %bias: f32[b, 1, s, t] %a = Abs(%m) %s = Add(%bias, %a) {TAIL} return %out",
        ["a (Abs) stands between the softmax and the product of Q and K"],
    ),
    (
        "scores have an upper bound",
        f"{HEAD} const %high: f32[] = 5.0 %s = Min(%m, %high) {TAIL} return %out",
        ["s (Min) stands between the softmax and the product of Q and K"],
    ),
    (
        "V made with the same probabilities",
        "input %q: f32[b, 4, s, 8] input %k: f32[b, 4, s, 8] input %v: f32[b, 4, s, 6] "
        "%kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt) %p = Softmax(%m) "
        "%one = MatMul(%p, %v) %n = Neg(%one) %two = MatMul(%p, %n) return %one, %two",
        ["two (MatMul) multiplies the probabilities by what is made with them"],
    ),
    (
        "probabilities times themselves",
        "input %q: f32[b, 4, s, 8] input %k: f32[b, 4, s, 8] "
        "%kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt) %p = Softmax(%m) "
        "%out = MatMul(%p, %p) return %out",
        ["out (MatMul) takes the probabilities twice"],
    ),
    (
        "a bias inside the softcap",
        f"{HEAD} input %bias: f32[b, 1, s, t] %a = Add(%m, %bias) %s = Tanh(%a) {TAIL} return %out",
        ["a (Add) adds a bias inside the softcap"],
    ),
    (
        "a factor per key and query",
        f"{HEAD} input %f: f32[b, 1, s, t] %s = Mul(%m, %f) {TAIL} return %out",
        ["differs from key to key"],
    ),
    (
        "a bound on the scores",
        f"{HEAD} const %low: f32[] = -5.0 %s = Max(%m, %low) {TAIL} return %out",
        ["s (Max) bounds the scores"],
    ),
    (
        "something else between",
        f"{HEAD} %r = Relu(%m) %n = Neg(%r) %x = Add(%m, %n) %s = Neg(%x) {TAIL} return %out",
        None,
    ),
    (
        "a bias that broadcasts the scores",
        "input %q: f32[4, 5, 8] input %k: f32[4, 5, 8] input %v: f32[2, 4, 5, 8] "
        "input %bias: f32[2, 4, 5, 5] %kt = Transpose(%k) {perm = [0, 2, 1]} "
        f"%m = MatMul(%q, %kt) %s = Add(%m, %bias) {TAIL} return %out",
        ["s (Add) broadcasts the scores"],
    ),
    (
        "the wrong axis",
        "input %q: f32[2, 4, 6, 8] input %k: f32[2, 4, 6, 8] input %v: f32[2, 4, 6, 8] "
        "%kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt) "
        "%p = Softmax(%m) {axis = 2} %out = MatMul(%p, %v) return %out",
        ["out (MatMul) does not sum over the axis that the softmax normalises"],
    ),
    (
        "V per query",
        "input %q: f32[2, 4, 6, 8] input %k: f32[2, 4, 6, 8] input %v: f32[2, 6, 6, 8] "
        "%kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt) "
        '%p = Softmax(%m) {axis = -1} %out = Einsum(%p, %v) {equation = "bhij,bijd->bhid"} '
        "return %out",
        ["has Q, K or V of a layout"],
    ),
]


@pytest.mark.parametrize(("name", "body", "words"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refusals_name_the_node_and_what_was_found(
    name: str, body: str, words: list[str] | None
) -> None:
    sites = check(f"graph (opset 17) {{ {body} }}", SIZES)
    if words is None:  # cannot even be followed to both products: no site
        assert not any(s.fused for s in sites)
        return
    (site,) = sites
    assert not site.fused
    for word in words:
        assert word in site.reason


def test_of_two_softmaxes_each_is_a_site() -> None:
    body = f"{HEAD} %p0 = Softmax(%m) %p = Softmax(%p0) %out = MatMul(%p, %v) return %out"
    first, second = check(f"graph (opset 17) {{ {body} }}", SIZES)
    assert "p (Softmax) uses the probabilities" in first.reason
    assert "p0 (Softmax) stands between" in second.reason


def test_a_gate_before_a_projection_is_no_site() -> None:
    """A mixture's router: a softmax of a projection, whose weights meet a stored matrix."""
    body = """input %x: f32[b, s, 8] const %w: f32[8, 8] = absent %r = MatMul(%x, %w) %a = Abs(%r)
      %p = Softmax(%a) %y = Mul(%p, %x) %out = MatMul(%y, %w) return %out"""
    assert fuse(parse(f"graph (opset 17) {{ {body} }}")) == []


def test_a_softmax_over_several_axes_of_an_old_opset() -> None:
    text = """graph (opset 11) {
      input %q: f32[2, 4, 6, 8] input %k: f32[2, 4, 6, 8] input %v: f32[2, 4, 6, 8]
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
      %p = Softmax(%m) {axis = 1} %out = MatMul(%p, %v) return %out }"""
    (site,) = check(text)
    assert "normalises several axes" in site.reason


def test_k_permuted_otherwise_is_another_function() -> None:
    """Square sizes hide the mistake: the heads' axis and the keys' are swapped."""
    text = """graph (opset 17) {
      input %q: f32[2, 4, 4, 4] input %k: f32[2, 4, 4, 4] input %v: f32[2, 4, 4, 4]
      %kt = Transpose(%k) {perm = [0, 2, 1, 3]} %m = MatMul(%q, %kt)
      %p = Softmax(%m) {axis = -1} %out = MatMul(%p, %v) return %out }"""
    (site,) = check(text)
    assert site.fused, "it is attention over K^T, which has to be made"


def test_a_dropout_whose_mode_is_an_input() -> None:
    text = f"""graph (opset 17) {{ {HEAD} input %train: bool[] const %r: f32[] = 0.5
      %p0 = Softmax(%m) {{axis = -1}} %p = Dropout(%p0, %r, %train) %out = MatMul(%p, %v)
      return %out }}"""
    graph = parse(text)
    (site,) = fuse(graph)
    assert "drops probabilities at random" in site.reason


def test_a_dropout_whose_mask_is_used() -> None:
    text = f"""graph (opset 17) {{ {HEAD} %p0 = Softmax(%m) {{axis = -1}}
      %p, %mask = Dropout(%p0) %out = MatMul(%p, %v) return %out, %mask }}"""
    (site,) = fuse(parse(text))
    assert not site.fused


def test_a_product_held_in_place_by_an_order_of_control() -> None:
    text = f"""graph (opset 17) {{ {HEAD} %p = Softmax(%m) {{axis = -1}} %out = MatMul(%p, %v)
      %other = Neg(%q) control @other -> @p return %out, %other }}"""
    (site,) = fuse(parse(text))
    assert "order of control" in site.reason


NO_SITES = [
    "input %x: f32[b, s, 8] const %w: f32[8, 4] = absent %l = MatMul(%x, %w) "
    "%p = Softmax(%l) {axis = -1} return %p",
    "input %x: f32[b, s, 8] const %w: f32[8, 4] = absent const %e: f32[4, 8] = absent "
    "%l = MatMul(%x, %w) %p = Softmax(%l) {axis = -1} %y = MatMul(%p, %e) return %y",
    "input %a: f32[b, 8] input %c: f32[t, 8] %ct = Transpose(%c) {perm = [1, 0]} "
    "%l = MatMul(%a, %ct) %p = Softmax(%l) {axis = -1} return %p",
    "input %x: f32[b, s, 8] input %y: f32[b, 8, s] %p = Softmax(%x) {axis = -1} "
    "%o = MatMul(%p, %y) return %o",
    "input %x: f32[b, s, 8] const %w: f32[8, 4] = absent const %c: f32[4] = absent "
    "%l = MatMul(%x, %w) %n = Add(%l, %c) %p = Softmax(%n) {axis = -1} const %k: i64[1] = [2] "
    "%v, %i = TopK(%p, %k) return %v, %i",
]


@pytest.mark.parametrize("body", NO_SITES)
def test_other_softmaxes_are_no_sites(body: str) -> None:
    graph = parse(f"graph (opset 17) {{ {body} }}")
    before = str(graph)
    assert fuse(graph) == []
    assert str(graph).count("FlashAttention") == 0
    assert len(before) > 0


def test_scores_mixed_across_heads_are_refused() -> None:
    """Talking heads: a stored matrix between the product and the softmax."""
    text = f"""graph (opset 17) {{ {HEAD} const %w: f32[4, 4] = [[1.0, 0.0, 0.0, 0.5],
      [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.2, 0.0, 0.0, 1.0]]
      %last = Transpose(%m) {{perm = [0, 2, 3, 1]}} %mixed = MatMul(%last, %w)
      %s = Transpose(%mixed) {{perm = [0, 3, 1, 2]}} {TAIL} return %out }}"""
    (site,) = check(text, SIZES)
    assert "mixed (MatMul) mixes scores by a stored matrix" in site.reason


def test_a_second_run_tells_anew_what_the_first_refused() -> None:
    text = f"""graph (opset 17) {{ {HEAD} %s = Neg(%m) {TAIL} %other = Neg(%s)
      return %out, %other }}"""
    graph, context = parse(text), PassContext()
    FuseAttention().run(graph, context)
    FuseAttention().run(graph, context)
    assert len(context.sites) == 1
    graph.set_outputs(["out"])
    graph.remove_op("other")
    FuseAttention().run(graph, context)
    assert [s.fused for s in context.sites] == [True]
