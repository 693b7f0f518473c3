"""ai.onnx Attention becomes FlashAttention where the meaning allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_help import Arrays, assert_close, flash, fuse, random_feeds, run
from onnx.reference import ReferenceEvaluator

from gecompiler.ir import Graph, parse
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.passes.attention.site import AttentionSite

SIZES = {"b": 2, "s": 5, "t": 7, "n": 3}
FOUR = "input %q: f32[b, 4, s, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 6]"
FLAT = "input %q: f32[b, s, 32] input %k: f32[b, t, 16] input %v: f32[b, t, 12]"
HEADS = "q_num_heads = 4, kv_num_heads = 2"


def reference(graph: Graph, feeds: Arrays) -> Arrays:
    """onnx's own evaluation, the standard's meaning in numbers."""
    model = to_onnx(graph)
    names = [o.name for o in model.graph.output]
    wanted = {i.name for i in model.graph.input}
    outputs = ReferenceEvaluator(model).run(None, {k: v for k, v in feeds.items() if k in wanted})
    return {n: np.asarray(o, np.float32) for n, o in zip(names, outputs, strict=True)}


def fused(body: str, opset: int = 23, feeds: Arrays | None = None) -> AttentionSite:
    text = f"graph (opset {opset}) {{ {body} }}"
    source, graph = parse(text), parse(text)
    (site,) = fuse(graph)
    assert site.fused, site.reason
    for seed in range(2):
        given = random_feeds(source, SIZES, seed) | (feeds or {})
        assert_close(reference(source, given), run(graph, given))
    return site


@pytest.mark.parametrize("operands", [FOUR, FLAT], ids=["4D", "3D"])
@pytest.mark.parametrize(
    ("attrs", "scale", "softcap"),
    [("", 8**-0.5, None), ("scale = 0.3f", 0.3, None), ("softcap = 4.0f", 8**-0.5, 4.0)],
)
def test_plain_attention(operands: str, attrs: str, scale: float, softcap: float | None) -> None:
    all_attrs = ", ".join(a for a in (HEADS if operands == FLAT else "", attrs) if a)
    site = fused(f"{operands} %out = Attention(%q, %k, %v) {{{all_attrs}}} return %out")
    assert (site.q_heads, site.kv_heads, site.head_dim, site.v_head_dim) == (4, 2, 8, 6)
    assert site.scale == pytest.approx(scale)
    assert site.softcap == (None if softcap is None else pytest.approx(softcap))
    assert site.mask == "none"


@pytest.mark.parametrize(
    ("kind", "mask"),
    [("bool", "boolean"), ("f32", "additive")],
)
@pytest.mark.parametrize("shape", ["b, 1, s, t", "s, t", "4, s, t", "b, 4, s, t"])
def test_masks_given(kind: str, mask: str, shape: str) -> None:
    body = f"{FOUR} input %m: {kind}[{shape}] %out = Attention(%q, %k, %v, %m) return %out"
    assert fused(body).mask == mask


def test_causality_counts_from_the_first_key() -> None:
    body = f"{FOUR} %out = Attention(%q, %k, %v) {{is_causal = 1}} return %out"
    site = fused(body)
    assert (site.mask, site.window) == ("causal", (-1, 0))
    graph = parse(f"graph (opset 23) {{ {body} }}")
    fuse(graph)
    assert flash(graph).attr("align") == "top_left"
    assert flash(graph).attr("masked_row") == "zero"


def test_causality_behind_a_past_counts_from_its_end() -> None:
    body = f"""{FOUR} input %pk: f32[b, 2, n, 8] input %pv: f32[b, 2, n, 6]
      %out, %nk, %nv = Attention(%q, %k, %v, _, %pk, %pv) {{is_causal = 1}}
      return %out, %nk, %nv""".replace(", t,", ", s,")
    site = fused(body)
    assert (site.mask, site.window, site.kv_cache) == ("causal", (-1, 0), True)
    graph = parse(f"graph (opset 23) {{ {body} }}")
    fuse(graph)
    assert flash(graph).attr("align") == "bottom_right"
    assert [(s.input, s.output, s.axis) for s in graph.states] == [("pk", "nk", 2), ("pv", "nv", 2)]


def test_causality_behind_a_past_with_another_number_of_new_keys_than_of_queries() -> None:
    body = f"""{FOUR} input %pk: f32[b, 2, n, 8] input %pv: f32[b, 2, n, 6]
      %out, %nk, %nv = Attention(%q, %k, %v, _, %pk, %pv) {{is_causal = 1}}
      return %out, %nk, %nv"""
    assert fused(body).mask == "boolean"  # neither corner says it: the condition is computed


def test_the_same_beside_a_bias() -> None:
    body = f"""{FOUR} input %pk: f32[b, 2, n, 8] input %pv: f32[b, 2, n, 6]
      input %m: f32[b, 1, s, n + t]
      %out, %nk, %nv = Attention(%q, %k, %v, %m, %pk, %pv) {{is_causal = 1}}
      return %out, %nk, %nv"""
    assert fused(body).mask == "additive"


def test_flat_operands_behind_a_past() -> None:
    body = f"""{FLAT} input %pk: f32[b, 2, n, 8] input %pv: f32[b, 2, n, 6]
      %out, %nk, %nv = Attention(%q, %k, %v, _, %pk, %pv) {{{HEADS}}} return %out, %nk, %nv"""
    assert fused(body).kv_cache


def test_a_mask_and_causality_together() -> None:
    body = f"""{FOUR} input %m: bool[b, 1, 1, t] %out = Attention(%q, %k, %v, %m) {{is_causal = 1}}
      return %out"""
    # onnx's own evaluation wants the mask to have all queries; it is the same mask.
    wide = body.replace("b, 1, 1, t]", "b, 1, s, t]")
    assert fused(wide).mask == "boolean"
    graph = parse(f"graph (opset 23) {{ {body} }}")
    (site,) = fuse(graph)
    assert (site.mask, site.window) == ("causal+padding", (-1, 0))


def test_a_float_mask_and_causality_together() -> None:
    body = f"""{FOUR} input %m: f32[b, 1, s, t] %out = Attention(%q, %k, %v, %m) {{is_causal = 1}}
      return %out"""
    site = fused(body)
    assert (site.mask, site.proven, site.window) == ("additive", "causal", (-1, 0))


@pytest.mark.parametrize("causal", [0, 1])
def test_a_number_of_valid_keys_per_batch_entry(causal: int) -> None:
    body = f"""{FOUR} input %n: i64[b] %out = Attention(%q, %k, %v, _, _, _, %n)
      {{is_causal = {causal}}} return %out"""
    site = fused(body, opset=24, feeds={"n": np.array([3, 6])})
    assert site.mask == ("boolean" if causal else "padding")


def test_windows_of_opset_25() -> None:
    body = f"""{FOUR} %out = Attention(%q, %k, %v) {{left_window_size = 2, right_window_size = 1}}
      return %out"""
    text = f"graph (opset 25) {{ {body} }}"
    graph = parse(text)
    (site,) = fuse(graph)
    assert (site.mask, site.window) == ("sliding_window", (2, 1))


def test_masks_built_in_the_graph_are_understood() -> None:
    body = f"""{FOUR} input %marks: i64[b, t] %truth = Cast(%marks) {{to = 9}}
      const %axes: i64[2] = [1, 2] %pad = Unsqueeze(%truth, %axes)
      %qs = Shape(%q) %ks = Shape(%k) const %at: i64[] = 2 %nq = Gather(%qs, %at)
      %nk = Gather(%ks, %at) const %z: i64[] = 0 const %o: i64[] = 1
      const %a0: i64[1] = [0] const %a1: i64[1] = [1]
      %rq = Range(%z, %nq, %o) %rk = Range(%z, %nk, %o) %i = Unsqueeze(%rq, %a1)
      %j = Unsqueeze(%rk, %a0) %before = LessOrEqual(%j, %i) %m = And(%before, %pad)
      %out = Attention(%q, %k, %v, %m) return %out"""
    site = fused(body)
    assert (site.mask, site.window) == ("causal+padding", (-1, 0))


def test_a_factor_on_q_before_the_op_is_its_scale() -> None:
    body = """input %q: f32[b, 4, s, 8] input %k: f32[b, 2, t, 8] input %v: f32[b, 2, t, 6]
      const %c: f32[] = 0.25 %scaled = Mul(%q, %c)
      %out = Attention(%scaled, %k, %v) {scale = 1.0f} return %out"""
    assert fused(body).scale == pytest.approx(0.25)


REFUSED: list[tuple[str, int, str]] = [
    (
        f"{FOUR} %out, _, _, %s = Attention(%q, %k, %v) return %out, %s",
        23,
        "hands out its scores",
    ),
    (
        f"{FOUR} input %m: f32[b, 1, s, u] %out = Attention(%q, %k, %v, %m) return %out",
        24,
        "for u of",
    ),
]


@pytest.mark.parametrize(("body", "opset", "reason"), REFUSED)
def test_what_flash_attention_cannot_mean_is_refused(body: str, opset: int, reason: str) -> None:
    graph = parse(f"graph (opset {opset}) {{ {body} }}")
    context: Any = fuse(graph)
    assert reason in context[0].reason


@pytest.mark.parametrize("keys", ["t", "6"])
@pytest.mark.parametrize("kind", ["bool", "f32"])
def test_a_mask_for_the_first_keys_only_is_padded_for_runtimes(kind: str, keys: str) -> None:
    operands = FOUR.replace(", t,", f", {keys},")
    body = f"{operands} input %m: {kind}[b, 1, s, 3] %out = Attention(%q, %k, %v, %m) return %out"
    text = f"graph (opset 24) {{ {body} }}"
    source, graph = parse(text), parse(text)
    (site,) = fuse(graph)
    assert site.fused, site.reason
    feeds = random_feeds(source, SIZES)
    # onnxruntime does not pad masks: the definition by hand.
    rest = SIZES["t"] - 3 if keys == "t" else 3
    pad = ((0, 0),) * 3 + ((0, rest),)
    whole = np.pad(feeds["m"], pad, constant_values=False if kind == "bool" else -np.inf)
    full = parse(text.replace("b, 1, s, 3]", f"b, 1, s, {keys}]"))
    assert_close(reference(full, feeds | {"m": whole}), run(graph, feeds))


@pytest.mark.parametrize(("operands", "heads"), [(FOUR, ""), (FLAT, HEADS)], ids=["4D", "3D"])
def test_presents_without_a_past_are_keys_and_values(operands: str, heads: str) -> None:
    site = fused(
        f"{operands} %out, %pk, %pv = Attention(%q, %k, %v) {{{heads}}} return %out, %pk, %pv"
    )
    assert (site.q_heads, site.kv_heads, site.kv_cache) == (4, 2, False)
