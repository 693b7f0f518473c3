"""Masks: what they are called, what they become, and what rows without a key give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_help import check, flash, fuse, random_feeds

from gecompiler.ir import parse
from gecompiler.ir.types import DType
from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 3, "s": 5, "t": 6}
MIN = -3.4028234663852886e38
INF = float("-inf")

HEAD = """
  input %q: f32[b, 4, s, 8]
  input %k: f32[b, 4, t, 8]
  input %v: f32[b, 4, t, 8]
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]}
  %m = MatMul(%q, %kt)
  const %zero: f32[] = 0.0
"""
TAIL = """
  %p = Softmax(%scores) {axis = -1}
  %out = MatMul(%p, %v)
  return %out
"""
GUARDED = """
  %p0 = Softmax(%scores) {axis = -1}
  %nan = IsNaN(%p0)
  %p = Where(%nan, %zero, %p0)
  %out = MatMul(%p, %v)
  return %out
"""
POSITIONS = """
  %qs = Shape(%q) %ks = Shape(%k) const %at: i64[] = 2
  %nq = Gather(%qs, %at) {axis = 0} %nk = Gather(%ks, %at) {axis = 0}
  const %z: i64[] = 0 const %o: i64[] = 1 const %a0: i64[1] = [0] const %a1: i64[1] = [1]
  %rq = Range(%z, %nq, %o) %rk = Range(%z, %nk, %o)
  %i = Unsqueeze(%rq, %a1) %j = Unsqueeze(%rk, %a0)
"""
CAUSAL = f"{POSITIONS} %allowed = LessOrEqual(%j, %i)"
PADDING = """
  input %marks: i64[b, t] %truth = Cast(%marks) {to = 9}
  const %axes: i64[2] = [1, 2] %allowed = Unsqueeze(%truth, %axes)
"""


def site_of(body: str, tail: str = TAIL, opset: int = 17, **options: Any) -> AttentionSite:
    (site,) = check(f"graph (opset {opset}) {{ {HEAD} {body} {tail} }}", SIZES, **options)
    assert site.fused, site.reason
    return site


def op_of(body: str, tail: str = TAIL) -> Any:
    graph = parse(f"graph (opset 17) {{ {HEAD} {body} {tail} }}")
    fuse(graph)
    return graph, flash(graph)


def added(low: float) -> str:
    """The mask added to the scores as 0 or ``low``."""
    return (
        f"const %low: f32[] = {low} %term = Where(%allowed, %zero, %low) %scores = Add(%m, %term)"
    )


def replaced(low: float) -> str:
    """Scores replaced by ``low``."""
    return f"const %low: f32[] = {low} %scores = Where(%allowed, %m, %low)"


# ---------------------------------------------------------------- the table of masked rows


@pytest.mark.parametrize("how", [added, replaced])
@pytest.mark.parametrize(
    ("low", "tail", "row"),
    [
        (INF, TAIL, "nan"),
        (INF, GUARDED, "zero"),
        (MIN, TAIL, "mean"),
        (MIN, GUARDED, "mean"),
        (-1e35, TAIL, "mean"),
    ],
)
def test_rows_without_a_key_give_what_they_gave(how: Any, low: float, tail: str, row: str) -> None:
    body = f"{PADDING} {how(low)}"
    assert site_of(body, tail).mask == "padding"
    graph, op = op_of(body, tail)
    assert op.attr("masked_row") == row
    assert graph.tensor(op.inputs[3]).dtype is DType.BOOL


def test_a_finite_number_that_is_added_stays_a_bias() -> None:
    site = site_of(f"{PADDING} {added(-1e4)}", tolerance=3e-3)
    assert site.mask == "additive"


@pytest.mark.parametrize(
    ("number", "kind"), [(-1e4, "causal"), (-1e9, "causal"), (-9.0, "additive")]
)
def test_unless_every_row_is_proven_to_keep_a_key(number: float, kind: str) -> None:
    """Masks of older exports; a score that much below all others is not thought of."""
    site = site_of(f"{CAUSAL} {added(number)}", tolerance=3e-3)
    assert site.mask == kind


@pytest.mark.parametrize("number", [-1e4, -1.0, 2.0])
def test_a_small_number_in_place_of_scores_is_the_score_of_a_key_of_zeros(number: float) -> None:
    text = f"graph (opset 17) {{ {HEAD} {PADDING} {replaced(number)} {TAIL} }}"
    (site,) = check(text, SIZES)
    assert (site.fused, site.mask) == (True, "additive")
    graph = parse(text)
    fuse(graph)
    keys = graph.tensor(flash(graph).inputs[1])
    assert keys is not None
    assert str(keys.shape[2]) == "2*t"


def test_but_it_can_where_a_softcap_bounds_the_scores() -> None:
    body = f"""const %c: f32[] = 5.0 %d = Div(%m, %c) %t = Tanh(%d) %m2 = Mul(%t, %c)
      {PADDING} {replaced(-1e4).replace("%m,", "%m2,")}"""
    assert site_of(body).mask == "padding"


def test_two_finite_masks_overflow_where_both_mask() -> None:
    """min + min is -inf: such rows are no plain mean, so the sum stays a tensor."""
    body = f"""{PADDING} {CAUSAL.replace("%allowed", "%before")}
      const %low: f32[] = {MIN} %one = Where(%allowed, %zero, %low)
      %two = Where(%before, %zero, %low) %s1 = Add(%m, %one) %scores = Add(%s1, %two)"""
    site = site_of(body)
    assert (site.mask, site.proven) == ("additive", "causal+padding")


def test_two_finite_masks_are_one_where_every_row_keeps_a_key() -> None:
    body = f"""{POSITIONS} %after = LessOrEqual(%j, %i) const %two: i64[] = 2
      %first = Sub(%i, %two) %late = Greater(%j, %first) const %low: f32[] = {MIN}
      %x = Where(%after, %zero, %low) %y = Where(%late, %zero, %low)
      %s1 = Add(%m, %x) %scores = Add(%s1, %y)"""
    text = f"graph (opset 17) {{ {HEAD} {body} {TAIL} }}".replace(", t,", ", s,")
    (site,) = check(text, SIZES)
    assert (site.mask, site.window) == ("sliding_window", (1, 0))


def test_a_clamp_at_the_lowest_float_keeps_two_masks_from_overflowing() -> None:
    body = f"""{PADDING} {CAUSAL.replace("%allowed", "%before")}
      const %low: f32[] = {MIN} %one = Where(%allowed, %zero, %low)
      %two = Where(%before, %zero, %low) %s1 = Add(%m, %one) %s2 = Add(%s1, %two)
      %scores = Max(%s2, %low)"""
    assert site_of(body).mask == "causal+padding"


@pytest.mark.parametrize("outer", [MIN, INF])
@pytest.mark.parametrize("inner", [MIN, INF])
def test_masks_of_unequal_kinds_on_top_of_each_other(inner: float, outer: float) -> None:
    body = f"""{PADDING} {CAUSAL.replace("%allowed", "%before")}
      const %l1: f32[] = {inner} const %l2: f32[] = {outer}
      %s1 = Where(%allowed, %m, %l1) %scores = Where(%before, %s1, %l2)"""
    site_of(body)
    site_of(body, GUARDED)


def test_a_mask_again_on_the_probabilities_makes_masked_rows_zero() -> None:
    body = f"{PADDING} {replaced(MIN)}"
    tail = """%p0 = Softmax(%scores) {axis = -1} %p = Where(%allowed, %p0, %zero)
      %out = MatMul(%p, %v) return %out"""
    assert site_of(body, tail).mask == "padding"
    assert op_of(body, tail)[1].attr("masked_row") == "zero"


def test_another_mask_on_the_probabilities_is_refused() -> None:
    text = f"""graph (opset 17) {{ {HEAD} {PADDING} {replaced(MIN)} input %other: bool[b, 1, 1, t]
      %p0 = Softmax(%scores) {{axis = -1}} %p = Where(%other, %p0, %zero)
      %out = MatMul(%p, %v) return %out }}"""
    (site,) = check(text, SIZES)
    assert "zeroes other probabilities" in site.reason


DISENTANGLED = """input %keep: bool[b, 1, 1, t] input %rel: f32[b, 4, 8, t]
  %r = MatMul(%q, %rel) %s = Add(%r, %m)"""
"""DeBERTa: a position term made of a product, added before the mask."""


def masked_again(body: str) -> AttentionSite:
    (site,) = check(f"graph (opset 17) {{ {HEAD} {body} return %out }}", SIZES)
    return site


@pytest.mark.parametrize("low", [float("-inf"), -3.4028234663852886e38, -1e4])
@pytest.mark.parametrize("how", ["where", "mul"])
def test_a_mask_again_on_the_probabilities_beside_a_bias(low: float, how: str) -> None:
    again = {
        "where": "%p = Where(%keep, %p0, %zero)",
        "mul": "%f = Cast(%keep) {to = 1} %p = Mul(%p0, %f)",
    }[how]
    site = masked_again(f"""{DISENTANGLED} const %low: f32[] = {low} %x = Where(%keep, %s, %low)
      %p0 = Softmax(%x) {{axis = -1}} {again} %out = MatMul(%p, %v)""")
    assert site.fused, site.reason
    assert (site.mask, site.proven) == ("additive", "padding")


def test_a_mask_again_beside_a_bias_that_may_be_a_mask() -> None:
    site = masked_again("""input %keep: bool[b, 1, 1, t] input %bias: f32[b, 4, s, t]
      const %low: f32[] = -3.4028234663852886e38 %s = Add(%m, %bias) %x = Where(%keep, %s, %low)
      %p0 = Softmax(%x) {axis = -1} %p = Where(%keep, %p0, %zero) %out = MatMul(%p, %v)""")
    assert "'bias' may be a mask as well" in site.reason


def test_a_mask_on_the_probabilities_that_keeps_all_of_them() -> None:
    site = masked_again(f"""{DISENTANGLED} const %all: bool[1, 1, 1, 1] = [[[[true]]]]
      %p0 = Softmax(%s) {{axis = -1}} %p = Where(%all, %p0, %zero) %out = MatMul(%p, %v)""")
    assert site.fused, site.reason
    assert (site.mask, site.proven) == ("additive", None)


@pytest.mark.parametrize("low", [-1e4, -1e9, -3.0])
@pytest.mark.parametrize("pad", [False, True])
def test_a_product_with_ones_and_zeros_and_a_number_in_place_of_the_zeros(
    low: float, pad: bool
) -> None:
    """GPT's ``w * b - 1e4 * (1 - b)``; any other number for the zeros is a score of its own."""
    given = "input %pad: f32[2, 1, 1, 3] %y = Add(%x, %pad)" if pad else "%y = Identity(%x)"
    body = f"""graph (opset 17) {{
      input %q: f32[2, 4, 3, 8] input %k: f32[2, 4, 3, 8] input %v: f32[2, 4, 3, 8]
      const %b: f32[1, 1, 3, 3] = [[[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]]]
      const %one: f32[] = 1.0 const %low: f32[] = {low} %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}}
      %qk = MatMul(%q, %kt) %w = Mul(%qk, %b) %n = Sub(%one, %b) %l = Mul(%n, %low)
      %x = Add(%w, %l) {given} %p = Softmax(%y) {{axis = -1}} %out = MatMul(%p, %v)
      return %out }}"""
    (site,) = check(body)
    assert site.fused, site.reason
    plain = low < -3.0 and not pad
    assert (site.mask, site.window) == (("causal", (-1, 0)) if plain else ("additive", (-1, -1)))


def test_half_precision_masked_rows_are_means() -> None:
    """In float16 the lowest number swallows scores below 16."""
    text = """graph (opset 17) {
      input %q: f16[b, 4, s, 8] input %k: f16[b, 4, t, 8] input %v: f16[b, 4, t, 8]
      input %mask: bool[b, 1, 1, t] const %zero: f16[] = 0.0 const %low: f16[] = -65504.0
      %kt = Transpose(%k) {perm = [0, 1, 3, 2]} %m = MatMul(%q, %kt)
      %term = Where(%mask, %zero, %low) %scores = Add(%m, %term)
      %p = Softmax(%scores) {axis = -1} %out = MatMul(%p, %v) return %out }"""
    (site,) = check(text, SIZES, tolerance=5e-3)
    assert site.mask == "padding"


def test_the_lowest_half_is_no_mask_in_float32() -> None:
    site = site_of(f"{PADDING} {added(-65504.0)}", tolerance=2e-2)
    assert site.mask == "additive"


def test_the_lowest_float32_becomes_minus_infinity_in_half_precision() -> None:
    text = f"""graph (opset 17) {{
      input %q: f16[b, 4, s, 8] input %k: f16[b, 4, t, 8] input %v: f16[b, 4, t, 8]
      input %mask: bool[b, 1, 1, t] const %zero: f32[] = 0.0 const %low: f32[] = {MIN}
      %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt) %m32 = Cast(%m) {{to = 1}}
      %term = Where(%mask, %zero, %low) %s32 = Add(%m32, %term) %scores = Cast(%s32) {{to = 10}}
      %p = Softmax(%scores) {{axis = -1}} %out = MatMul(%p, %v) return %out }}"""
    graph = parse(text)
    fuse(graph)
    assert flash(graph).attr("masked_row") == "nan"


# ---------------------------------------------------------------- structure


@pytest.mark.parametrize("how", [added, replaced])
@pytest.mark.parametrize(
    ("condition", "kind", "window"),
    [
        (CAUSAL, "causal", (-1, 0)),
        (f"{POSITIONS} %g = Greater(%j, %i) %allowed = Not(%g)", "causal", (-1, 0)),
        (f"{POSITIONS} %d = Sub(%i, %j) %allowed = GreaterOrEqual(%d, %z)", "causal", (-1, 0)),
        (
            f"{POSITIONS} %d = Sub(%i, %j) %n = Abs(%d) const %w: i64[] = 2 "
            "%allowed = LessOrEqual(%n, %w)",
            "sliding_window",
            (2, 2),
        ),
        (
            f"{POSITIONS} %c = LessOrEqual(%j, %i) const %w: i64[] = 3 %f = Sub(%i, %w) "
            "%l = Greater(%j, %f) %allowed = And(%l, %c)",
            "sliding_window",
            (2, 0),
        ),
        (
            f"{POSITIONS} %c = Greater(%j, %i) const %w: i64[] = 3 %f = Sub(%i, %w) "
            "%l = LessOrEqual(%j, %f) %masked = Or(%l, %c) %allowed = Not(%masked)",
            "sliding_window",
            (2, 0),
        ),
        (f"{POSITIONS} %allowed = GreaterOrEqual(%j, %z)", "none", (-1, -1)),
        (PADDING, "padding", (-1, -1)),
        ("input %allowed: bool[b, 1, s, t]", "boolean", (-1, -1)),
        ("input %allowed: bool[b, 4, 1, t]", "boolean", (-1, -1)),
        ("input %allowed: bool[b, 1, s, 1]", "boolean", (-1, -1)),
        ("input %allowed: bool[s, t]", "boolean", (-1, -1)),
    ],
)
def test_what_a_condition_is(how: Any, condition: str, kind: str, window: Any) -> None:
    site = site_of(f"{condition} {how(INF)}", GUARDED)
    assert (site.mask, site.window) == (kind, window)


def test_causality_and_padding_are_an_attribute_and_a_small_mask() -> None:
    body = f"""{PADDING.replace("%allowed", "%keys")} {CAUSAL.replace("%allowed", "%before")}
      %allowed = And(%before, %keys) {added(MIN)}"""
    assert site_of(body).mask == "causal+padding"
    graph, op = op_of(body)
    assert op.inputs[3] == "keys"
    assert [str(d) for d in graph.shape("keys")] == ["b", "1", "1", "t"]
    assert op.attr("window_right") == 0


def test_causality_counted_from_the_end_of_a_cache() -> None:
    text = (
        """graph (opset 17) {
      input %q: f32[b, 4, s, 8] input %past: f32[b, 4, n, 8] input %new: f32[b, 4, s, 8]
      input %v: f32[b, 4, n + s, 8] const %zero: f32[] = 0.0 const %low: f32[] = -inf
      %k = Concat(%past, %new) {axis = 2} %kt = Transpose(%k) {perm = [0, 1, 3, 2]}
      %m = MatMul(%q, %kt)
      %qs = Shape(%q) %ps = Shape(%past) %ks = Shape(%k) const %at: i64[] = 2
      %nq = Gather(%qs, %at) %np = Gather(%ps, %at) %nk = Gather(%ks, %at)
      const %z: i64[] = 0 const %o: i64[] = 1 const %a0: i64[1] = [0] const %a1: i64[1] = [1]
      %rq = Range(%z, %nq, %o) %rk = Range(%z, %nk, %o) %moved = Add(%rq, %np)
      %i = Unsqueeze(%moved, %a1) %j = Unsqueeze(%rk, %a0) %allowed = LessOrEqual(%j, %i)
      %term = Where(%allowed, %zero, %low) %scores = Add(%m, %term)"""
        + TAIL
        + "}"
    )
    (site,) = check(text, {"b": 2, "s": 3, "n": 4})
    assert (site.mask, site.window) == ("causal", (-1, 0))
    graph = parse(text)
    fuse(graph)
    assert flash(graph).attr("align") == "bottom_right"


@pytest.mark.parametrize(("s", "t"), [(6, 6), (4, 6), (6, 4), (1, 6)])
@pytest.mark.parametrize("shift", [0, 2])
def test_stored_triangles(s: int, t: int, shift: int) -> None:
    i, j = np.arange(s)[:, None], np.arange(t)[None, :]
    triangle = str((j <= i + shift).astype(bool).tolist()).lower()
    text = f"""graph (opset 17) {{
      input %q: f32[2, 4, {s}, 8] input %k: f32[2, 4, {t}, 8] input %v: f32[2, 4, {t}, 8]
      const %allowed: bool[1, 1, {s}, {t}] = [[{triangle}]] const %low: f32[] = -inf
      %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt)
      %scores = Where(%allowed, %m, %low) {TAIL} }}"""
    (site,) = check(text)
    assert site.fused
    graph = parse(text)
    fuse(graph)
    assert len(flash(graph).inputs) == 3, "a triangle is a window, no tensor"


def test_a_stored_float_triangle() -> None:
    body = f"const %mask: f32[3, 3] = [[0.0, {MIN}, {MIN}], [0.0, 0.0, {MIN}], [0.0, 0.0, 0.0]]"
    text = f"""graph (opset 17) {{
      input %q: f32[2, 4, 3, 8] input %k: f32[2, 4, 3, 8] input %v: f32[2, 4, 3, 8] {body}
      %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt) %scores = Add(%mask, %m)
      {TAIL} }}"""
    (site,) = check(text)
    assert (site.mask, site.window) == ("causal", (-1, 0))


def test_an_index_slice_of_a_stored_triangle() -> None:
    """GPT-2's buffer, sliced to the lengths of the run."""
    triangle = str(np.tril(np.ones((8, 8), bool)).tolist()).lower()
    text = f"""graph (opset 17) {{
      input %q: f32[b, 4, s, 8] input %past: f32[b, 4, n, 8] input %new: f32[b, 4, s, 8]
      input %v: f32[b, 4, n + s, 8] const %buffer: bool[1, 1, 8, 8] = [[{triangle}]]
      const %low: f32[] = {MIN} %k = Concat(%past, %new) {{axis = 2}}
      %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt)
      %ps = Shape(%past) %ks = Shape(%k) const %at: i64[1] = [2] const %z: i64[1] = [0]
      const %three: i64[1] = [3] %np = Gather(%ps, %at) %nk = Gather(%ks, %at)
      %rows = Slice(%buffer, %np, %nk, %at) %allowed = Slice(%rows, %z, %nk, %three)
      %scores = Where(%allowed, %m, %low) {TAIL} }}"""
    (site,) = check(text, {"b": 2, "s": 3, "n": 4})
    assert (site.mask, site.window) == ("causal", (-1, 0))


def test_strict_causality_is_no_window_but_fused() -> None:
    """Windows begin at the query's own key; a row without keys comes first here."""
    site = site_of(f"{POSITIONS} %allowed = Less(%j, %i) {replaced(MIN)}")
    assert site.mask == "boolean"


def test_a_bias_over_causality_keeps_the_window() -> None:
    body = f"""{CAUSAL} const %table: f32[4, 1, 1] = [[[0.5]], [[0.1]], [[0.2]], [[-0.3]]]
      %far = Cast(%j) {{to = 1}} %slope = Mul(%far, %table) %s1 = Add(%m, %slope)
      {added(MIN).replace("%m,", "%s1,")}"""
    site = site_of(body)
    assert (site.mask, site.proven, site.window) == ("additive", "causal", (-1, 0))


def test_a_bias_over_padding_stays_one_sum() -> None:
    body = f"{PADDING} input %bias: f32[4, s, t] %s1 = Add(%m, %bias)"
    site = site_of(f"{body} {added(INF).replace('%m,', '%s1,')}")
    assert (site.mask, site.proven) == ("additive", "padding")


def test_a_bias_that_may_be_a_mask_itself_is_not_parted_from_a_finite_one() -> None:
    """Rows masked by the two together would tell the difference."""
    body = f"{CAUSAL} input %bias: f32[b, 1, s, t] %s1 = Add(%m, %bias)"
    text = f"graph (opset 17) {{ {HEAD} {body} {added(MIN).replace('%m,', '%s1,')} {TAIL} }}"
    feeds = random_feeds(parse(text), SIZES)
    feeds["bias"][:, :, 2, :3] = MIN
    (site,) = check(text, SIZES, feeds)
    assert (site.mask, site.proven, site.window) == ("additive", "causal", (-1, -1))


def test_a_mask_added_to_a_bias_once_for_all_layers() -> None:
    body = f"""{CAUSAL} const %low: f32[] = {MIN} %term = Where(%allowed, %zero, %low)
      const %table: f32[4, 1, 1] = [[[0.5]], [[0.1]], [[0.2]], [[-0.3]]]
      %far = Cast(%j) {{to = 1}} %slope = Mul(%far, %table) %sum = Add(%slope, %term)
      %scores = Add(%m, %sum)"""
    site = site_of(body)
    assert (site.mask, site.proven, site.window) == ("additive", "causal", (-1, 0))


def test_a_mask_before_the_scale_is_scaled_too() -> None:
    body = f"""{PADDING} {added(-3.0).replace("%scores", "%s1")} const %c: f32[] = 0.5
      %scores = Mul(%s1, %c)"""
    assert site_of(body).scale == pytest.approx(0.5)


def test_a_subtracted_mask() -> None:
    body = "input %bias: f32[b, 1, s, t] %scores = Sub(%m, %bias)"
    assert site_of(body).mask == "additive"
    turned = "input %bias: f32[b, 1, s, t] %scores = Sub(%bias, %m)"
    assert site_of(turned).scale == -1.0


def test_ones_minus_marks_times_the_lowest_float_is_padding() -> None:
    body = f"""input %marks: i64[b, t] %truth = Cast(%marks) {{to = 9}}
      %ones = Cast(%truth) {{to = 1}} const %one: f32[] = 1.0 %not = Sub(%one, %ones)
      const %axes: i64[2] = [1, 2] %four = Unsqueeze(%not, %axes) const %low: f32[] = {MIN}
      %term = Mul(%four, %low) %scores = Add(%m, %term)"""
    assert site_of(body).mask == "padding"


def test_marks_not_proven_to_be_0_or_1_stay_a_bias() -> None:
    body = f"""input %marks: f32[b, 1, 1, t] const %one: f32[] = 1.0 %not = Sub(%one, %marks)
      const %low: f32[] = {MIN} %term = Mul(%not, %low) %scores = Add(%m, %term)"""
    marks = np.array([[1, 1, 0, 1, 0, 1]] * 3, np.float32).reshape(3, 1, 1, 6)
    text = f"graph (opset 17) {{ {HEAD} {body} {TAIL} }}"
    feeds = random_feeds(parse(text), SIZES) | {"marks": marks}
    (site,) = check(text, SIZES, feeds)
    assert site.mask == "additive"


def test_windows_of_images_with_a_shifted_mask() -> None:
    """Swin: a bias per head, then a mask added on a view that tells windows apart."""
    draw = np.random.default_rng(0)
    bias = draw.standard_normal((2, 4, 4)).round(2).tolist()
    mask = np.where(draw.random((3, 4, 4)) < 0.5, -100.0, 0.0).tolist()
    text = f"""graph (opset 17) {{
      input %q: f32[6, 2, 4, 8] input %k: f32[6, 2, 4, 8] input %v: f32[6, 2, 4, 8]
      const %bias: f32[2, 4, 4] = {bias} const %mask: f32[3, 4, 4] = {mask}
      %kt = Transpose(%k) {{perm = [0, 1, 3, 2]}} %m = MatMul(%q, %kt) %s1 = Add(%m, %bias)
      const %five: i64[5] = [2, 3, 2, 4, 4] const %four: i64[4] = [6, 2, 4, 4]
      %s2 = Reshape(%s1, %five) const %one: i64[2] = [0, 2] %m5 = Unsqueeze(%mask, %one)
      %s3 = Add(%s2, %m5) %scores = Reshape(%s3, %four) {TAIL} }}"""
    (site,) = check(text)
    assert (site.fused, site.mask, site.q_heads) == (True, "additive", 2)


def test_the_same_mask_is_made_once_for_all_layers() -> None:
    layers = "".join(
        f"""%m{n} = MatMul(%q, %kt) %s{n} = Where(%allowed, %m{n}, %low)
        %p{n} = Softmax(%s{n}) {{axis = -1}} %o{n} = MatMul(%p{n}, %v) """
        for n in range(3)
    )
    text = f"""graph (opset 17) {{ {HEAD} {PADDING} const %low: f32[] = -inf {layers}
      return %o0, %o1, %o2 }}"""
    graph = parse(text)
    fuse(graph)
    masks = {op.inputs[3] for op in graph.ops if op.op_type == "FlashAttention"}
    assert masks == {"allowed"}


def test_sinks_take_their_share_and_no_value() -> None:
    body = """input %logits: f32[4] const %sh: i64[4] = [1, 4, 1, 1] %l = Reshape(%logits, %sh)
      %ms = Shape(%m) const %one: i64[1] = [1] const %end: i64[] = 3 const %z1: i64[1] = [0]
      const %three: i64[1] = [3] %lead = Slice(%ms, %z1, %three) %target = Concat(%lead, %one)
      {axis = 0} %column = Expand(%l, %target) %joined = Concat(%m, %column) {axis = -1}
      %top = ReduceMax(%joined) {axes = [-1], keepdims = 1} %scores = Sub(%joined, %top)"""
    tail = """%p0 = Softmax(%scores) {axis = -1} const %last: i64[1] = [-1]
      const %axis: i64[1] = [3] const %from: i64[1] = [0] %p = Slice(%p0, %from, %last, %axis)
      %out = MatMul(%p, %v) return %out"""
    assert site_of(body, tail).fused
    graph, op = op_of(body, tail)
    assert len(op.inputs) == 5
    assert graph.shape(op.inputs[4]) == (4,)


@pytest.mark.parametrize("pad", [[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1], [0] * 6])
def test_scores_of_half_products_masked_in_float_by_the_lowest_half(pad: list[int]) -> None:
    """MPT in float16: a bias in float32, then -65504, which is no mask in float32 by itself."""
    body = """input %q: f16[b, 4, s, 8] input %k: f16[b, 4, s, 8] input %v: f16[b, 4, s, 8]
      input %marks: i64[b, s] %truth = Cast(%marks) {to = 9} const %axes: i64[2] = [1, 2]
      %allowed = Unsqueeze(%truth, %axes) %kt = Transpose(%k) {perm = [0, 1, 3, 2]}
      %m = MatMul(%q, %kt) %wide = Cast(%m) {to = 1} const %slope: f32[1, 4, 1, 1] =
      [[[[-0.5]], [[-0.25]], [[-0.125]], [[-0.0625]]]] const %row: f32[1, 1, 1, 6] =
      [[[[5, 4, 3, 2, 1, 0]]]] %alibi = Mul(%slope, %row) %biased = Add(%wide, %alibi)
      const %low: f32[] = -65504.0 %scores = Where(%allowed, %biased, %low)
      %p32 = Softmax(%scores) {axis = -1} %p = Cast(%p32) {to = 10} %out = MatMul(%p, %v)
      return %out"""
    text = f"graph (opset 17) {{ {body} }}"
    source = parse(text)
    feeds = random_feeds(source, {"b": 1, "s": 6}) | {"marks": np.array([pad])}
    (site,) = check(text.replace("b, ", "1, ").replace(", s", ", 6"), feeds=feeds, tolerance=4e-3)
    assert (site.fused, site.mask) == (True, "additive")


def positions_as(kind: str, code: int, first: int) -> str:
    """A condition that is causality unless numbers from ``first`` on do not fit the type."""
    return f"""{POSITIONS} const %first: {kind}[] = {first}
      %fi = Cast(%i) {{to = {code}}} %fj = Cast(%j) {{to = {code}}}
      %gi = Add(%fi, %first) %gj = Add(%fj, %first)
      %ci = Cast(%gi) {{to = 7}} %cj = Cast(%gj) {{to = 7}} %allowed = LessOrEqual(%cj, %ci)"""


@pytest.mark.parametrize(
    ("kind", "code", "first", "mask"),
    [
        ("f32", 1, 0, "causal"),
        ("f32", 1, 2**24 - 2, "boolean"),
        ("f16", 10, 2046, "boolean"),
        ("i8", 3, 125, "boolean"),
        ("i32", 6, 5, "causal"),
        ("u8", 2, 253, "boolean"),
    ],
)
def test_positions_are_followed_only_as_far_as_their_type_holds_them(
    kind: str, code: int, first: int, mask: str
) -> None:
    """Beyond, numbers wrap or are rounded, and the tensor says what the formula does not."""
    assert site_of(f"{positions_as(kind, code, first)} {replaced(INF)}", GUARDED).mask == mask


def test_short_positions_in_a_short_type() -> None:
    """Sizes that are numbers prove it."""
    text = f"""graph (opset 17) {{ {HEAD} {positions_as("f16", 10, 0)} {replaced(INF)} {TAIL} }}"""
    for size, number in (("b", "2"), ("s", "5"), ("t", "5")):
        text = text.replace(f" {size},", f" {number},").replace(f"[{size},", f"[{number},")
    (site,) = check(text)
    assert site.mask == "causal"
