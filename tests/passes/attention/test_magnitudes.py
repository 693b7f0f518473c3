"""Masks made of numbers: sums of them that must stay sums, and what is proven small enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from attention_help import assert_close, check, fuse, run
from onnx.reference import ReferenceEvaluator

from gecompiler.backends.kernels.attention import flash_attention
from gecompiler.ir import parse
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.infer import infer_types
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.magnitudes import magnitude
from gecompiler.passes.attention.site import AttentionSite

MIN = -3.4028234663852886e38
PAD = [0, 1, 1, 1]


def text(body: str, kind: str = "f32", extra: str = "") -> str:
    """Causal attention over 4 keys whose scores ``%s`` become ``%x`` by ``body``."""
    return f"""graph (opset 20) {{
      input %q: {kind}[1, 2, 4, 8] input %k: {kind}[1, 2, 8, 4] input %v: {kind}[1, 2, 4, 8] {extra}
      const %c: bool[4, 4] =
        [[true, false, false, false], [true, true, false, false],
         [true, true, true, false], [true, true, true, true]]
      %s = MatMul(%q, %k) {body}
      %p = Softmax(%x) {{axis = -1}} %o = MatMul(%p, %v) return %o }}"""


def operands(dtype: Any = np.float32) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    shapes = {"q": (1, 2, 4, 8), "k": (1, 2, 8, 4), "v": (1, 2, 4, 8)}
    return {n: draw.standard_normal(s).astype(dtype) for n, s in shapes.items()}


def site_of(source: str, feeds: dict[str, Any], tolerance: float = 2e-5) -> AttentionSite:
    (site,) = check(source, feeds=feeds, tolerance=tolerance)
    return site


FLOATS = {
    "log": "%b = Log(%pad)",
    "twice the log": "const %two: f32[] = 2.0 %l = Log(%pad) %b = Mul(%l, %two)",
    "reciprocal": "const %one: f32[] = 1.0 %r = Reciprocal(%pad) %b = Sub(%one, %r)",
    "power": """const %one: f32[] = 1.0 const %m: f32[] = 1e6 const %six: f32[] = 6.0
      %n = Sub(%one, %pad) %g = Mul(%n, %m) %h = Pow(%g, %six) %b = Neg(%h)""",
    "exponential": """const %one: f32[] = 1.0 const %m: f32[] = 88.0
      %n = Sub(%one, %pad) %g = Mul(%n, %m) %h = Exp(%g) %b = Neg(%h)""",
    "sum": f"""const %one: f32[] = 1.0 const %m: f32[] = {MIN} const %axes: i64[1] = [4]
      const %last: i64[1] = [4] %n = Sub(%one, %pad) %g = Mul(%n, %m)
      %u = Unsqueeze(%g, %last) %b = ReduceSum(%u, %axes) {{keepdims = 0}}""",
    "product": f"""const %one: f32[] = 1.0 const %m: f32[1, 1] = [[{MIN}]] const %a: i64[1] = [4]
      %n = Sub(%one, %pad) %u = Unsqueeze(%n, %a) %g = MatMul(%u, %m) %b = Squeeze(%g, %a)""",
}


@pytest.mark.parametrize("low", [MIN, -1e30])
@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("bias", FLOATS.values(), ids=FLOATS)
def test_a_finite_mask_beside_a_bias_of_unknown_size_stays_a_sum(
    bias: str, outer: bool, low: float
) -> None:
    how = "%w = Where(%c, %s, %low) %x = Add(%w, %b)"
    if not outer:
        how = "%w = Add(%s, %b) %x = Where(%c, %w, %low)"
    source = text(f"const %low: f32[] = {low} {bias} {how}", extra="input %pad: f32[1, 1, 1, 4]")
    feeds = operands() | {"pad": np.array(PAD, np.float32).reshape(1, 1, 1, 4)}
    site = site_of(source, feeds)
    assert (site.mask, site.window) == ("additive", (-1, -1))


@pytest.mark.parametrize("low", ["-65504.0", "-inf"])
@pytest.mark.parametrize("kind", ["i64", "f16"])
def test_half_precision_masks_swallow_scores_as_the_model_does(kind: str, low: str) -> None:
    source = text(
        f"""const %low: f16[] = {low} const %m: f16[] = -65504.0 const %one: f16[] = 1.0
        %w = Where(%c, %s, %low) %f = Cast(%pad) {{to = 10}} %n = Sub(%one, %f)
        %b = Mul(%n, %m) %x = Add(%w, %b)""",
        "f16",
        f"input %pad: {kind}[1, 1, 1, 4]",
    )
    dtype = np.int64 if kind == "i64" else np.float16
    feeds = operands(np.float16) | {"pad": np.array(PAD, dtype).reshape(1, 1, 1, 4)}
    source_model: onnx.ModelProto = to_onnx(parse(source))
    graph = parse(source)
    (site,) = fuse(graph)
    assert site.mask == "additive"
    expected = {"o": ReferenceEvaluator(source_model).run(None, feeds)[0]}
    assert_close(expected, run(graph, feeds), 5e-3)


@pytest.mark.parametrize("bias", ["%b = Tanh(%pad)", "%b = Softmax(%pad)", "%b = Sin(%pad)"])
def test_a_bias_that_is_proven_small_leaves_the_window(bias: str) -> None:
    source = text(
        f"const %low: f32[] = {MIN} {bias} %w = Where(%c, %s, %low) %x = Add(%w, %b)",
        extra="input %pad: f32[1, 1, 1, 4]",
    )
    feeds = operands() | {"pad": np.array(PAD, np.float32).reshape(1, 1, 1, 4)}
    assert site_of(source, feeds).window == (-1, 0)


@pytest.mark.parametrize("number", ["1e8", "-1e8", "3e4"])
def test_a_large_number_added_to_all_scores_stays(number: str) -> None:
    source = text(f"const %big: f32[] = {number} %x = Add(%s, %big)")
    assert site_of(source, operands(), 3e-3).mask == "additive"


def test_a_small_number_added_to_all_scores_goes() -> None:
    assert site_of(text("const %few: f32[] = 3.0 %x = Add(%s, %few)"), operands()).mask == "none"


def test_a_mask_that_adds_a_large_number_to_allowed_keys_is_a_bias() -> None:
    body = """const %big: f32[] = 1e8 const %low: f32[] = -inf
      %b = Where(%c, %big, %low) %x = Add(%s, %b)"""
    assert site_of(text(body), operands()).mask == "additive"


def gpt(low: str) -> str:
    return text(
        f"""const %low: f32[] = {low} const %one: f32[] = 1.0 %w = Where(%c, %s, %low)
        %f = Cast(%pad) {{to = 1}} %n = Sub(%one, %f) %b = Mul(%n, %low) %x = Add(%w, %b)""",
        extra="input %pad: i64[1, 1, 1, 4]",
    )


@pytest.mark.parametrize("pad", [[1, 1, 1, 0], PAD, [0, 0, 0, 0]])
def test_two_masks_of_a_billion_are_summed_as_the_model_sums_them(pad: list[int]) -> None:
    feeds = operands() | {"pad": np.array(pad).reshape(1, 1, 1, 4)}
    site = site_of(gpt("-1e9"), feeds)
    assert (site.fused, site.mask) == (True, "additive")


@pytest.mark.parametrize("pad", [[1, 1, 1, 0], PAD, [0, 0, 0, 0]])
def test_two_masks_that_scores_survive_become_keys_of_their_own(pad: list[int]) -> None:
    feeds = operands() | {"pad": np.array(pad).reshape(1, 1, 1, 4)}
    site = site_of(gpt("-1e4"), feeds)
    assert (site.fused, site.mask) == (True, "additive")


def test_a_floor_under_a_sum_of_masks_is_kept() -> None:
    source = text(
        f"""const %low: f32[] = {MIN} const %one: f32[] = 1.0 const %m: f32[] = {MIN}
        %w = Where(%c, %s, %low) %n = Sub(%one, %pad) %b = Mul(%n, %m) %y = Add(%w, %b)
        %x = Max(%y, %low)""",
        extra="input %pad: f32[1, 1, 1, 4]",
    )
    feeds = operands() | {"pad": np.zeros((1, 1, 1, 4), np.float32)}
    assert site_of(source, feeds).mask == "additive"


@pytest.mark.parametrize(
    ("ops", "bound"),
    [
        ("%y = Tanh(%a)", 1.0),
        ("const %l: f32[] = -5.0 const %h: f32[] = 3.0 %y = Clip(%a, %l, %h)", 5.0),
        ("const %l: f32[] = -5.0 %y = Clip(%a, %l)", np.inf),
        ("const %f: f32[] = -7.0 %t = Tanh(%a) %y = Mul(%t, %f)", 7.0),
        ("const %f: f32[] = 4.0 %t = Tanh(%a) %y = Div(%t, %f)", 0.25),
        ("%t = Tanh(%a) %u = Sin(%a) %y = Add(%t, %u)", 2.0),
        ("%y = Log(%a)", np.inf),
        ("%y = Exp(%a)", np.inf),
        ("%y = MatMul(%a, %a)", np.inf),
        ("%t = Cast(%a) {to = 9} %y = Cast(%t) {to = 1}", 1.0),
        ("%t = Cast(%a) {to = 3} %y = Cast(%t) {to = 1}", 128.0),
        ("%t = Cast(%a) {to = 7} %y = Cast(%t) {to = 10}", np.inf),
        ("const %y: f32[2] = [-8.0, 3.0]", 8.0),
    ],
)
def test_magnitudes(ops: str, bound: float) -> None:
    graph = parse(f"graph (opset 20) {{ input %a: f32[2, 2] {ops} %z = Identity(%y) return %z }}")
    infer_types(graph)
    assert magnitude(Elements(graph), "y") == bound


@pytest.mark.parametrize("row", ["nan", "mean", "zero"])
@pytest.mark.parametrize("shared", [0, 1])
def test_k_or_v_alone_may_lack_the_batch(shared: int, row: Any) -> None:
    draw = np.random.default_rng(0)
    q = draw.standard_normal((2, 4, 5, 8)).astype(np.float32)
    kv = [draw.standard_normal((2 - (n == shared), 4, 7, 8)).astype(np.float32) for n in (0, 1)]
    mask = np.ones((2, 1, 5, 7), np.bool_)
    mask[0, 0, 2] = False
    attrs = FlashAttention(scale=0.5, q_heads=4, kv_heads=4, masked_row=row)
    whole = [np.broadcast_to(a, (2, 4, 7, 8)) for a in kv]
    found = flash_attention(q, kv[0], kv[1], mask, attrs=attrs)
    np.testing.assert_array_equal(found, flash_attention(q, whole[0], whole[1], mask, attrs=attrs))


@pytest.mark.parametrize("lack", ["k", "v"])
def test_k_or_v_of_lower_rank(lack: str) -> None:
    shapes = {"q": (2, 4, 5, 8), "k": (2, 4, 8, 7), "v": (2, 4, 7, 8)}
    shapes[lack] = shapes[lack][1:]
    inputs = " ".join(f"input %{n}: f32{list(s)}" for n, s in shapes.items())
    body = "%s = MatMul(%q, %k) %p = Softmax(%s) {axis = -1} %o = MatMul(%p, %v) return %o"
    draw = np.random.default_rng(0)
    feeds = {n: draw.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    for opset in (17, 23):
        (site,) = check(f"graph (opset {opset}) {{ {inputs} {body} }}", feeds=feeds)
        assert site.fused
