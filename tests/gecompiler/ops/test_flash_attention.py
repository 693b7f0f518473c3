"""flash_attention against attention in float64, in every layout, mask and type."""

from __future__ import annotations

import numpy as np
import pytest
from attention_problems import (
    BF16,
    LAYOUTS,
    allowed_keys,
    assert_same,
    into,
    random_problem,
    unfused,
)

import gecompiler as ge

TYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]


def run(p, layout="BNSD", **more):
    arrays = [into(a, layout) for a in (p.q, p.k, p.v)]
    if layout == "TND":
        batch = p.q.shape[0]
        more["actual_seq_qlen"] = [p.q.shape[2] * (i + 1) for i in range(batch)]
        more["actual_seq_kvlen"] = [p.k.shape[2] * (i + 1) for i in range(batch)]
    return ge.ops.flash_attention(
        *arrays, p.q.shape[1], p.k.shape[1], layout, **{**p.options, **more}
    )


def largest(error):
    return np.abs(error).max(initial=0)


def check_accuracy(seed):
    """At most twice the error of unfused float32 and 1e-6; narrow types as rounded once."""
    problem = random_problem(np.random.default_rng(seed))
    layout = LAYOUTS[seed % 4]
    for dtype in TYPES:
        p = problem.typed(dtype)
        got = run(p, layout).astype(np.float64)
        exact = unfused(p, np.float64)
        error = largest(got - into(exact, layout))
        if dtype == np.float32:
            plain = min(
                largest(unfused(p, np.float32, scale_first=first) - exact)
                for first in (False, True)
            )
            assert error <= 2 * plain + 1e-6, (seed, error, plain)
        else:
            once = largest(exact.astype(dtype).astype(np.float64) - exact)
            assert error <= 2 * once, (seed, dtype, error, once)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_as_exact_as_unfused_float32_and_as_rounding_once(first):
    for seed in range(first, first + 20):
        check_accuracy(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 6000, 500))
def test_as_exact_in_five_thousand_configurations(first):
    for seed in range(first, first + 500):
        check_accuracy(seed)


@pytest.mark.parametrize("seed", range(40))
def test_layouts_agree(seed):
    rng = np.random.default_rng(seed)
    p = random_problem(rng).typed(TYPES[seed % 3])
    p.options.pop("block_mask", None)  # not defined for TND
    want = run(p, "BNSD")
    for layout in LAYOUTS:
        masks = {}
        for name in ("attn_mask", "atten_mask"):  # TND knows no batch but sequences, of four dims
            if p.options.get(name) is not None:
                mask = p.options[name]
                masks[name] = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        assert_same(run(p, layout, **masks), into(want, layout), layout)


@pytest.mark.parametrize("seed", range(60))
def test_grouped_heads_equal_expanded_ones(seed):
    p = random_problem(np.random.default_rng(1000 + seed)).typed(TYPES[seed % 3])
    repeats = p.q.shape[1] // p.k.shape[1]
    got, lse = run(p, return_lse=True)
    p.k, p.v = np.repeat(p.k, repeats, axis=1), np.repeat(p.v, repeats, axis=1)
    wide, wide_lse = run(p, return_lse=True)
    assert_same(got, wide)
    assert_same(lse, wide_lse)


@pytest.mark.parametrize("queries", [1, 2, 4, 5, 7, 33, 100])
@pytest.mark.parametrize("dtype", [*TYPES, np.dtype(np.float64)])
def test_heads_and_sequences_beside_it_change_nothing(queries, dtype):
    rng = np.random.default_rng(queries)
    q, k, v = (rng.normal(size=(3, n, t, 40)) for n, t in ((10, queries), (2, 77), (2, 77)))
    q, k, v = ((5 * a).astype(dtype) for a in (q, k, v))
    options = {"input_layout": "BNSD", "is_causal": True, "causal_align": "bottom_right"}
    whole = ge.ops.flash_attention(q, k, v, 10, 2, **options)
    for b, h in np.ndindex(3, 10):
        one = ge.ops.flash_attention(
            *(a[b : b + 1, n : n + 1] for a, n in ((q, h), (k, h // 5), (v, h // 5))),
            1, **options,
        )  # fmt: skip
        assert_same(one[0, 0], whole[b, h])


@pytest.mark.parametrize("seed", range(60))
def test_log_sum_exp(seed):
    p = random_problem(np.random.default_rng(2000 + seed))
    _, lse = run(p, return_lse=True)
    o = p.options
    repeats = p.q.shape[1] // p.k.shape[1]
    scores = p.q @ np.repeat(p.k, repeats, axis=1).swapaxes(-1, -2)
    scores *= o.get("scale", p.q.shape[3] ** -0.5)
    if o.get("softcap"):
        scores = o["softcap"] * np.tanh(scores / o["softcap"])
    mask = o.get("attn_mask")
    if mask is not None and mask.dtype != bool:
        scores = scores + mask
    scores = np.where(allowed_keys(p), scores, -np.inf)
    if o.get("sinks") is not None:
        sinks = np.broadcast_to(o["sinks"].reshape(1, -1, 1, 1), (*scores.shape[:3], 1))
        scores = np.concatenate([scores, sinks], axis=3)
    with np.errstate(divide="ignore"):
        want = np.logaddexp.reduce(scores, axis=3, initial=-np.inf)
    assert lse.dtype == np.float64
    np.testing.assert_allclose(lse, want, rtol=1e-9, atol=1e-9)


def arrays(queries=6, keys=6, heads=4, groups=2, width=8, dtype=np.float32):
    rng = np.random.default_rng(7)
    q = rng.normal(size=(1, queries, heads, width)).astype(dtype)
    k, v = (rng.normal(size=(1, keys, groups, width)).astype(dtype) for _ in range(2))
    return q, k, v


def test_sequences_of_various_lengths_are_each_by_itself():
    q, k, v = (a[0] for a in arrays(queries=12, keys=14))
    q_ends, k_ends = [3, 3, 8, 12], [4, 6, 6, 14]
    mask = np.random.default_rng(0).random((4, 1, 5, 8)) < 0.7
    got, lse = ge.ops.flash_attention(
        q, k, v, 4, 2, "TND", attn_mask=mask, actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends,
        return_lse=True,
    )  # fmt: skip
    assert lse.shape == (4, 12)
    for i, (a, b, c, d) in enumerate([(0, 3, 0, 4), (3, 3, 4, 6), (3, 8, 6, 6), (8, 12, 6, 14)]):
        part = mask[i : i + 1, :, : b - a, : d - c]
        want = ge.ops.flash_attention(
            q[None, a:b], k[None, c:d], v[None, c:d], 4, 2, attn_mask=part
        )
        assert_same(got[a:b], want[0])
    assert not got[3:8].any()  # the third has no keys


def test_heads_of_key_and_value_are_read_off_their_shape():
    q, k, v = arrays()
    want = ge.ops.flash_attention(q, k, v, 4, 2)
    assert_same(ge.ops.flash_attention(q, k, v, 4), want)
    flat = [a.reshape(1, 6, -1) for a in (q, k, v)]
    got = ge.ops.flash_attention(*flat, 4, input_layout="bsh")
    assert_same(got, want.reshape(1, 6, -1))


def test_both_polarities_and_the_0_1_integers_of_ascend():
    q, k, v = arrays()
    keep = np.random.default_rng(1).random((6, 6)) < 0.5
    want = ge.ops.flash_attention(q, k, v, 4, attn_mask=keep)
    for other in (~keep, (~keep).astype(np.uint8), (~keep).astype(np.int8)):
        assert_same(ge.ops.flash_attention(q, k, v, 4, atten_mask=other), want)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_float_mask_of_0_and_1_is_refused_and_the_cast_named(dtype):
    q, k, v = arrays()
    mask = np.tril(np.ones((6, 6))).astype(dtype)
    with pytest.raises(ge.UsageError, match=r"attn_mask\.astype\(bool\)") as caught:
        ge.ops.flash_attention(q, k, v, 4, attn_mask=mask)
    assert "mask nothing" in str(caught.value)
    ge.ops.flash_attention(q, k, v, 4, attn_mask=mask * 0)  # adds nothing, masks nothing
    got = ge.ops.flash_attention(q, k, v, 4, attn_mask=mask.astype(bool))
    want = ge.ops.flash_attention(q, k, v, 4, is_causal=True)
    assert_same(got, want)


def test_rows_without_a_key_are_zero_and_have_no_mass():
    q, k, v = arrays()
    keep = np.ones((6, 6), bool)
    keep[2] = False
    for options in ({"attn_mask": keep}, {"attn_mask": np.where(keep, 0.5, -np.inf)}):
        out, lse = ge.ops.flash_attention(q, k, v, 4, return_lse=True, **options)
        assert not out[:, 2].any()
        assert (lse[:, :, 2] == -np.inf).all()
        assert np.isfinite(out).all()
        assert out[:, [0, 1, 3, 4, 5]].all()


def test_no_keys_no_queries_and_one_key():
    q, k, v = arrays()
    assert not ge.ops.flash_attention(q, k[:, :0], v[:, :0], 4).any()
    assert ge.ops.flash_attention(q[:, :0], k, v, 4).shape == (1, 0, 4, 8)
    one = ge.ops.flash_attention(q, k[:, :1], v[:, :1], 4)
    np.testing.assert_allclose(one, np.repeat(v[:, :1], 2, axis=2).repeat(6, axis=1), rtol=1e-6)


def test_causal_alignments():
    q, k, v = arrays(queries=2, keys=6)
    top = ge.ops.flash_attention(q, k, v, 4, is_causal=True)
    np.testing.assert_allclose(top[:, 0], np.repeat(v[:, 0], 2, axis=1), rtol=1e-6)
    bottom = ge.ops.flash_attention(q, k, v, 4, is_causal=True, causal_align="bottom_right")
    whole = ge.ops.flash_attention(q, k, v, 4)
    assert_same(bottom[:, 1], whole[:, 1])
    assert not np.allclose(top[:, 1], bottom[:, 1])


def test_scores_of_ten_thousand():
    q = np.full((1, 3, 1, 2), 100.0, np.float32)
    k = np.array([[50.0, 50.0], [50.0, 49.999], [-50, 0]], np.float32).reshape(1, 3, 1, 2)
    v = np.array([1.0, 2.0, 3.0], np.float32).reshape(1, 3, 1, 1)
    got = ge.ops.flash_attention(q, k, v, 1, scale=1.0)
    scores = (q.astype(np.float64)[0, 0, 0] * k.astype(np.float64)[0, :, 0]).sum(axis=1)
    weights = np.exp(scores - scores.max())
    want = (weights * v.reshape(-1)).sum() / weights.sum()
    np.testing.assert_allclose(got, want, rtol=1e-6)


GOOD = dict(zip(("query", "key", "value"), arrays(), strict=True)) | {"head_num": 4}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head_num": 0}, "head_num must be a positive integer, found 0"),
        ({"head_num": True}, "head_num"),
        ({"head_num": 8}, "query has 4 heads .* expected 8"),
        ({"kv_head_num": 0}, "kv_head_num"),
        ({"kv_head_num": 4}, "key has 2 heads"),
        ({"key": np.ones((1, 6, 3, 8), np.float32)}, "no multiple of 3"),
        ({"key": np.ones((1, 6, 0, 8), np.float32)}, "no heads"),
        ({"key": np.ones((1, 6, 2, 9), np.float32)}, "9 wide"),
        ({"value": np.ones((1, 5, 2, 8), np.float32)}, "6 keys but 5 values"),
        ({"key": np.ones((3, 6, 2, 8), np.float32)}, "batches"),
        ({"query": np.ones((6, 4, 8), np.float32)}, "4D for layout BSND"),
        ({"query": np.ones((1, 6, 4, 8), np.int32)}, "float type"),
        ({"query": np.ones((1, 6, 4, 8), np.float16)}, "element types differ"),
        ({"query": np.ones((1, 6, 4, 0), np.float32)}, "width 0"),
        ({"input_layout": "BSDN"}, "did you mean 'BSND'"),
        ({"input_layout": "TND"}, "3D for layout TND"),
        ({"block_size_q": 0}, "block_size_q"),
        ({"block_size_k": 2.5}, "block_size_k"),
        ({"block_size_k": 128, "block_size_v": 64}, "block_size_v is 64 and block_size_k 128"),
        ({"block_size_v": 32}, "block_size_v"),
        ({"attn_mask": np.ones((5, 6), bool)}, "does not broadcast"),
        ({"attn_mask": np.ones((6, 6), np.int64)}, "cast|astype"),
        ({"atten_mask": np.ones((6, 6), np.float32)}, "masked out"),
        ({"atten_mask": np.full((6, 6), 2, np.uint8)}, "masked out"),
        ({"attn_mask": np.ones((6, 6), bool), "atten_mask": np.ones((6, 6), bool)}, "both"),
        ({"block_mask": np.ones((2, 2), bool)}, "mask of blocks"),
        ({"window": -2}, "window"),
        ({"window": (1, 2, 3)}, "window"),
        ({"window": "3"}, "window"),
        ({"window": True}, "window"),
        ({"is_causal": "bottom_right"}, "is_causal must be True or False"),
        ({"causal_align": "bottom"}, "bottom_right"),
        ({"scale": float("nan")}, "scale"),
        ({"softcap": -1.0}, "softcap"),
        ({"sinks": np.ones(3, np.float32)}, "sinks"),
        ({"actual_seq_qlen": [6]}, "belong to layout TND"),
    ],
)
def test_mistakes_are_named(change, said):
    ge.ops.flash_attention(**GOOD)
    with pytest.raises(ge.UsageError, match=said) as caught:
        ge.ops.flash_attention(**{**GOOD, **change})
    assert "lash" in str(caught.value)


@pytest.mark.parametrize(
    ("q_ends", "k_ends", "said"),
    [
        (None, [6], "needs actual_seq_qlen"),
        ([6], [3, 6], "1 sequences in actual_seq_qlen, 2 in"),
        ([5], [6], "ends at 5"),
        ([4, 2, 6], [1, 2, 6], "must not fall"),
        ([1.5, 6], [3, 6], "list of integers"),
        ([], [6], "list of integers"),
    ],
)
def test_lengths_that_make_no_sense(q_ends, k_ends, said):
    q, k, v = (a[0] for a in arrays())
    with pytest.raises(ge.UsageError, match=said):
        ge.ops.flash_attention(
            q, k, v, 4, 2, "TND", actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends
        )
