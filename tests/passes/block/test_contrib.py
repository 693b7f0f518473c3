"""What onnxruntime's optimizer writes becomes the same fused ops, with onnxruntime's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from block_help import Net, check, evaluate, expanded, fused, kinds
from rewriting_help import run

from gecompiler.ir import parse

MS = "com.microsoft."


def net(opset: int = 17) -> Net:
    found = Net(opset)
    found.domains = ", com.microsoft 1"
    return found


@pytest.mark.parametrize("opset", [14, 17, 23])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("sums", [False, True])
def test_norms_of_sums(opset: int, bias: bool, centred: bool, sums: bool) -> None:
    n = net(opset)
    x, skip = n.input("x", "f32[b, s, 8]"), n.input("skip", "f32[b, s, 8]")
    last = [n.weight(8), *([n.weight(8, seed=2)] if centred else [])]
    op = "SkipLayerNormalization" if centred else "SkipSimplifiedLayerNormalization"
    given = [x, skip, *last, *([n.weight(8, seed=3)] if bias else [])]
    made = n(MS + op, *given, outputs=4, epsilon=1e-3)
    n.out(made[0], *([made[3]] if sums else []))
    check(n, {"AddLayerNorm" if centred else "AddRMSNorm": 1})


def test_norm_without_a_shift() -> None:
    n = net()
    x, skip = n.input("x", "f32[b, s, 8]"), n.input("skip", "f32[b, s, 8]")
    made = n(MS + "SkipLayerNormalization", x, skip, n.weight(8), "", n.weight(8, seed=3))
    n.out(made)
    check(n, {"AddLayerNorm": 1})


def test_a_sum_that_broadcasts_stays_a_sum() -> None:
    n = net()
    x, skip = n.input("x", "f32[2, s, 8]"), n.input("skip", "f32[1, s, 8]")
    n.out(n(MS + "SkipSimplifiedLayerNormalization", x, skip, n.weight(8)))
    check(n, {"Add": 1, "RMSNorm": 1})


def test_statistics_that_are_read_keep_the_op() -> None:
    n = net()
    x, skip = n.input("x", "f32[b, s, 8]"), n.input("skip", "f32[b, s, 8]")
    made = n(MS + "SkipLayerNormalization", x, skip, n.weight(8), outputs=2)
    n.out(*made)
    assert kinds(fused(n.text)) == {MS + "SkipLayerNormalization": 1}


@pytest.mark.parametrize("opset", [14, 23])
@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_norms(opset: int, axis: int) -> None:
    n = net(opset)
    x = n.input("x", "f32[b, 3, 8]")
    scale = n.weight(8) if axis == -1 else n.weight(3, 8)
    n.out(n("SimplifiedLayerNormalization", x, scale, axis=axis, epsilon=1e-3, stash_type=1))
    check(n, {"RMSNorm": 1})


def test_simplified_norms_in_half_precision() -> None:
    n = net()
    x, skip = n.input("x", "f16[b, s, 8]"), n.input("skip", "f16[b, s, 8]")
    scale = n.weight(8, dtype="f16")
    first = n("SimplifiedLayerNormalization", x, scale, axis=-1, stash_type=1)
    n.out(n(MS + "SkipSimplifiedLayerNormalization", first, skip, scale))
    check(n, {"RMSNorm": 1, "AddRMSNorm": 1})


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_and_their_norm(static: bool, places: bool, segments: bool) -> None:
    n = net()
    kind = "i32[2, 3]" if static else "i32[b, s]"
    given = [n.input("ids", kind), n.input("segments", kind) if segments else ""]
    given += [n.weight(4, 8), n.weight(5, 8, seed=2), n.weight(2, 8, seed=3) if segments else ""]
    given += [n.weight(8), n.weight(8, seed=4)]
    given += ["", n.input("places", kind)] if places else []
    n.out(n(MS + "EmbedLayerNormalization", *given, outputs=2, epsilon=1e-3)[0])
    source, graph = parse(n.text), fused(n.text)
    assert kinds(graph)["AddLayerNorm" if segments or places else "LayerNorm"] == 1
    draw = np.random.default_rng(1)
    feeds = {name: draw.integers(0, 2, (2, 3)).astype(np.int32) for name in source.inputs}
    before = run(source, feeds)["out0"]
    for after in (evaluate(graph, feeds), run(expanded(graph, primitives=True), feeds)):
        np.testing.assert_allclose(after["out0"], before, rtol=1e-5, atol=1e-5)


def test_a_count_of_words_that_is_read_keeps_the_op() -> None:
    n = net()
    ids, mask = n.input("ids", "i32[b, s]"), n.input("mask", "i32[b, s]")
    rows = [n.weight(4, 8), n.weight(5, 8), "", n.weight(8), n.weight(8)]
    made = n(MS + "EmbedLayerNormalization", ids, "", *rows, mask, outputs=2)
    n.out(*made)
    assert kinds(fused(n.text)) == {MS + "EmbedLayerNormalization": 1}


@pytest.mark.parametrize("opset", [14, 20])
@pytest.mark.parametrize(
    ("op", "bias", "wanted"),
    [
        ("Gelu", False, "Gelu"),
        ("BiasGelu", True, "Gelu"),
        ("FastGelu", False, "Gelu"),
        ("FastGelu", True, "Gelu"),
        ("QuickGelu", False, "Silu"),
    ],
)
def test_activations(opset: int, op: str, bias: bool, wanted: str) -> None:
    n = net(opset)
    x = n.input("x", "f32[b, s, 8]")
    n.out(n(MS + op, x, *([n.weight(8)] if bias else [])))
    check(n, {wanted: 1}, tolerance=2e-5)


def test_a_gated_activation() -> None:
    n = net()
    x, up = n.input("x", "f32[b, s, 8]"), n.input("up", "f32[b, s, 8]")
    n.out(n("Mul", up, n(MS + "QuickGelu", x, alpha=1.25)))
    check(n, {"SiluMul": 1})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"activation_alpha": 1.75, "activation_beta": 1.0}])
@pytest.mark.parametrize("limit", [0.0, 0.75])
def test_swiglu(packed: bool, attrs: dict[str, float], limit: float) -> None:
    """onnxruntime has no kernel on the CPU: the ops that its documentation spells stand in."""
    fused_net, plain = net(), net()
    for n in (fused_net, plain):
        x = n.input("x", "f32[b, s, 8]")
        up = "" if packed else n.input("up", "f32[b, s, 8]")
        if n is fused_net:
            given = [v for v in (x, up) if v]
            n.out(n(MS + "SwiGLU", *given, limit=limit, **attrs))
            continue
        a = n.cut(x, 0, 4) if packed else x
        up = n.cut(x, 4, 8) if packed else up
        if limit:
            a = n("Min", a, n.const(limit))
            up = n("Clip", up, n.const(-limit), n.const(limit))
        slope, shift = attrs.get("activation_alpha", 1.0), attrs.get("activation_beta", 0.0)
        silu = n("Mul", a, n("Sigmoid", n("Mul", a, n.const(slope))))
        n.out(n("Mul", silu, n("Add", up, n.const(shift)) if shift else up))
    wanted = check(plain, {"SiluMul": 1})
    found = fused(fused_net.text)
    (ours,), (theirs,) = ([o for o in g.ops if o.op_type == "SiluMul"] for g in (found, wanted))
    assert (ours.attrs, ours.inputs) == (theirs.attrs, theirs.inputs)
    assert found.shape(found.outputs[0]) == wanted.shape(wanted.outputs[0])


def test_a_split_gelu() -> None:
    """The right half is squashed; onnxruntime has no kernel on the CPU, so primitives stand in."""
    n = net()
    x, bias = n.input("x", "f32[b, s, 8]"), n.weight(8)
    n.out(n(MS + "BiasSplitGelu", x, bias))
    graph = fused(n.text)
    assert kinds(graph) == {"GeluMul": 1}
    op = next(o for o in graph.ops if o.op_type == "GeluMul")
    assert op.attrs["gate"] == "last"
    assert op.inputs == ("x", "", bias)


def test_a_bias_and_a_skip() -> None:
    n = net()
    x, skip = n.input("x", "f32[b, s, 8]"), n.input("skip", "f32[b, s, 8]")
    total = n(MS + "BiasAdd", x, n.weight(8), skip)
    n.out(n("LayerNormalization", total, n.weight(8), n.weight(8, seed=2)))
    assert kinds(fused(n.text)) == {"AddLayerNorm": 1}


@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("batch", [(0, 0), (1, 0), (0, 1)])
def test_products(alpha: float, turned: tuple[int, int], batch: tuple[int, int]) -> None:
    n = net()
    sizes = [["b", "h", 3, 4], ["b", "h", 4, 5]]
    for size, swap, front in zip(sizes, turned, batch, strict=True):
        if swap:
            size[-2:] = size[-2:][::-1]
        if front:
            size[:3] = [size[2], size[0], size[1]]
    a, b = (
        n.input(name, f"f32[{', '.join(map(str, size))}]")
        for name, size in zip("ac", sizes, strict=True)
    )
    attrs = {"transA": turned[0], "transB": turned[1]}
    attrs |= {"transBatchA": batch[0], "transBatchB": batch[1]}
    n.out(n(MS + "FusedMatMul", a, b, alpha=alpha, **attrs))
    wanted = {"MatMul": 1, "Transpose": sum(s or f for s, f in zip(turned, batch, strict=True))}
    wanted["Mul"] = int(alpha != 1)
    check(n, {k: v for k, v in wanted.items() if v}, {"b": 2, "h": 3}, tolerance=1e-5)


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary(opset: int, interleaved: int, part: int, heads_first: bool, offset: bool) -> None:
    n = net(opset)
    x = n.input("x", "f32[b, 2, s, 8]" if heads_first else "f32[b, s, 16]")
    positions = n.ints(1) if offset else n.const([[2, 0, 1], [3, 2, 0]], "i64")
    width = (part or 8) // 2
    angles = np.outer(np.arange(6), 0.5 ** np.arange(width))
    tables = [n.const(np.round(f(angles), 4)) for f in (np.cos, np.sin)]
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": part, "num_heads": 2}
    if not part:
        attrs.pop("num_heads")
    graph_kinds = {"RotaryEmbedding": 1, "Gather": 2, "Unsqueeze": 2}
    if not heads_first:
        graph_kinds["Reshape"] = 2
    if offset:
        graph_kinds |= {"Shape": 1, "Gather": 3, "Range": 1, "Add": 1}
    n.out(n(MS + "RotaryEmbedding", x, positions, *tables, **attrs))
    check(n, graph_kinds, {"b": 2, "s": 3}, tolerance=1e-5)
