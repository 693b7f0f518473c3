"""Masks that only the model's own tensor says, whichever way round and however often."""

from __future__ import annotations

from typing import Any

import pytest
from attention_help import check

from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 3, "s": 5, "t": 6}

HEAD = """
  input %q: f32[b, 4, s, 8]
  input %k: f32[b, 4, t, 8]
  input %v: f32[b, 4, t, 8]
  input %prefix: bool[b, t]
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]}
  %m = MatMul(%q, %kt)
  const %zero: f32[] = 0.0
  %qs = Shape(%q) %ks = Shape(%k) const %at: i64[] = 2
  %nq = Gather(%qs, %at) {axis = 0} %nk = Gather(%ks, %at) {axis = 0}
  const %z: i64[] = 0 const %o: i64[] = 1 const %a0: i64[1] = [0] const %a1: i64[1] = [1]
  %rq = Range(%z, %nq, %o) %rk = Range(%z, %nk, %o)
  %i = Unsqueeze(%rq, %a1) %j = Unsqueeze(%rk, %a0)
  const %axes: i64[2] = [1, 2] %pre = Unsqueeze(%prefix, %axes)
  %past = LessOrEqual(%j, %i) %future = Greater(%j, %i) %after = Not(%pre)
"""
TAIL = """
  %p = Softmax(%scores) {axis = -1}
  %out = MatMul(%p, %v)
  return %out
"""
ALLOWED = "%mask = Or(%pre, %past)"
HIDDEN = "%mask = And(%after, %future)"
LOW = "const %low: f32[] = -inf"
LEAST = "const %low: f32[] = -3.4028234663852886e38"


def site_of(body: str, **options: Any) -> AttentionSite:
    (site,) = check(f"graph (opset 17) {{ {HEAD} {body} {TAIL} }}", SIZES, **options)
    assert site.fused, site.reason
    return site


@pytest.mark.parametrize("low", [LOW, LEAST])
@pytest.mark.parametrize(
    ("mask", "scores"),
    [
        (ALLOWED, "%scores = Where(%mask, %m, %low)"),
        (HIDDEN, "%scores = Where(%mask, %low, %m)"),
        (ALLOWED, "%term = Where(%mask, %zero, %low) %scores = Add(%m, %term)"),
        (HIDDEN, "%term = Where(%mask, %low, %zero) %scores = Add(%m, %term)"),
        (HIDDEN, "%term = Where(%mask, %low, %zero) %scores = Add(%term, %m)"),
    ],
)
def test_a_prefix_that_all_see_and_what_comes_after_it(low: str, mask: str, scores: str) -> None:
    """T5-like prefix masks: neither a lookup nor an order of positions alone."""
    site_of(f"{low} {mask} {scores}")


@pytest.mark.parametrize("first", [ALLOWED, HIDDEN])
def test_two_masks_one_after_the_other(first: str) -> None:
    then = {
        ALLOWED: "%one = Where(%mask, %m, %low)",
        HIDDEN: "%one = Where(%mask, %low, %m)",
    }[first]
    site_of(
        f"input %other: bool[b, 1, s, t] {LOW} {first} {then} %scores = Where(%other, %one, %low)"
    )
    site_of(
        f"input %other: bool[b, 1, s, t] {LOW} {first} {then} %scores = Where(%other, %low, %one)"
    )


@pytest.mark.parametrize(
    "scores",
    [
        "%one = Add(%m, %bias) %scores = Where(%mask, %one, %low)",
        "%one = Where(%mask, %m, %low) %scores = Add(%one, %bias)",
        "%one = Add(%m, %bias) %hide = Not(%mask) %scores = Where(%hide, %low, %one)",
        "%one = Sub(%m, %bias) %scores = Where(%mask, %one, %low)",
    ],
)
@pytest.mark.parametrize("low", [LOW, LEAST])
def test_a_prefix_mask_beside_a_bias(scores: str, low: str) -> None:
    site = site_of(f"input %bias: f32[1, 4, s, t] {low} {ALLOWED} {scores}")
    assert site.mask == "additive"


@pytest.mark.parametrize("number", ["0.5", "-2.0"])
@pytest.mark.parametrize("order", ["%mask, %m, %low", "%other, %low, %m"])
def test_numbers_in_the_place_of_scores_that_others_outweigh(number: str, order: str) -> None:
    body = f"const %low: f32[] = {number} {ALLOWED} {HIDDEN.replace('%mask', '%other')}"
    site_of(f"{body} %scores = Where({order})")


@pytest.mark.parametrize("shape", ["1, 4, s, t", "b, 1, 1, t", "s, t"])
@pytest.mark.parametrize("order", ["%mask, %m, %fill", "%mask, %fill, %m"])
def test_tensors_in_the_place_of_scores(shape: str, order: str) -> None:
    site_of(f"input %fill: f32[{shape}] {ALLOWED} %scores = Where({order})")
