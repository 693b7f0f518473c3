"""Gradients against finite differences, and against torch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from attention_problems import LAYOUTS, into, random_problem

import gecompiler as ge

STEP = 1e-5


def gradients(p, dout, layout="BNSD"):
    arrays = [into(a, layout) for a in (p.q, p.k, p.v)]
    heads, groups = p.q.shape[1], p.k.shape[1]
    options = {**p.options, "kv_head_num": groups, "input_layout": layout}
    out, lse = ge.ops.flash_attention(*arrays, heads, return_lse=True, **options)
    return ge.ops.flash_attention_backward(
        into(dout, layout), *arrays, out, lse, heads, mask_gradient=True, **options
    )


def problem(seed, largest=8):
    """A small one whose scores are moderate: a difference quotient needs smoothness."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng, largest=largest)
    p.q /= np.abs(p.q).max(initial=1.0)
    p.k /= np.abs(p.k).max(initial=1.0)
    if p.options.get("scale", 1) > 1:
        p.options["scale"] = 1.0
    for name in ("sinks", "attn_mask"):
        array = p.options.get(name)
        if array is not None and array.dtype != bool:
            largest_one = np.abs(array[np.isfinite(array)]).max(initial=1.0)
            p.options[name] = np.asarray(array.astype(np.float64) / (1.1 * largest_one))
    return p, rng.normal(size=(*p.q.shape[:3], p.v.shape[3])), rng


@pytest.mark.parametrize("seed", range(60))
def test_finite_differences(seed):
    p, dout, rng = problem(seed)
    found = gradients(p, dout)
    heads, groups = p.q.shape[1], p.k.shape[1]

    def loss():
        out = ge.ops.flash_attention(p.q, p.k, p.v, heads, groups, "BNSD", **p.options)
        return float((out * dout).sum())

    varied = [(p.q, found.query), (p.k, found.key), (p.v, found.value)]
    if p.options.get("sinks") is not None:
        varied.append((p.options["sinks"], found.sinks))
    mask = p.options.get("attn_mask")
    if mask is not None and mask.dtype != bool:
        varied.append((mask, found.attn_mask))
    for array, gradient in varied:
        assert gradient.shape == array.shape
        for _ in range(6):
            place = tuple(int(rng.integers(n)) for n in array.shape)
            before = array[place]
            if not np.isfinite(before):
                assert gradient[place] == 0
                continue
            array[place] = before + STEP
            above = loss()
            array[place] = before - STEP
            below = loss()
            array[place] = before
            np.testing.assert_allclose(gradient[place], (above - below) / (2 * STEP), atol=2e-7)


@pytest.mark.parametrize("seed", range(20))
def test_layouts_agree_to_the_bit(seed):
    p, dout, _ = problem(seed, largest=40)
    want = gradients(p, dout)
    for layout in LAYOUTS[:4]:
        got = gradients(p, dout, layout)
        for name in ("query", "key", "value"):
            np.testing.assert_array_equal(
                getattr(got, name), into(getattr(want, name), layout), layout
            )


def test_gradients_of_sequences_of_various_lengths():
    rng = np.random.default_rng(3)
    q, k, v, dout = (rng.normal(size=(n, h, 4)) for n, h in ((9, 4), (7, 2), (7, 2), (9, 4)))
    mask = rng.normal(size=(5, 6))
    sinks = rng.normal(size=4)
    ends = {"actual_seq_qlen": [4, 9], "actual_seq_kvlen": [6, 7]}
    options = {"input_layout": "TND", "attn_mask": mask, "sinks": sinks, **ends}
    out, lse = ge.ops.flash_attention(q, k, v, 4, return_lse=True, **options)
    got = ge.ops.flash_attention_backward(dout, q, k, v, out, lse, 4, mask_gradient=True, **options)
    total, sink_total = np.zeros_like(mask), np.zeros(4)
    for rows, keys in ((slice(0, 4), slice(0, 6)), (slice(4, 9), slice(6, 7))):
        part = [a[None] for a in (q[rows], k[keys], v[keys])]
        size = (slice(0, rows.stop - rows.start), slice(0, keys.stop - keys.start))
        own = {"attn_mask": mask[size], "sinks": sinks}
        o, s = ge.ops.flash_attention(*part, 4, return_lse=True, **own)
        want = ge.ops.flash_attention_backward(
            dout[None, rows], *part, o, s, 4, mask_gradient=True, **own
        )
        np.testing.assert_array_equal(got.query[rows], want.query[0])
        np.testing.assert_array_equal(got.key[keys], want.key[0])
        np.testing.assert_array_equal(got.value[keys], want.value[0])
        total[size] += want.attn_mask
        sink_total += want.sinks
    np.testing.assert_allclose(got.attn_mask, total)
    np.testing.assert_allclose(got.sinks, sink_total)


def test_masked_values_that_are_not_finite_do_not_matter():
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.normal(size=(1, 6, 2, 4)).astype(np.float32) for _ in range(4))
    keep = np.ones(6, bool)
    keep[3] = False
    out, lse = ge.ops.flash_attention(q, k, v, 2, attn_mask=keep, return_lse=True)
    want = ge.ops.flash_attention_backward(dout, q, k, v, out, lse, 2, attn_mask=keep)
    k[:, 3], v[:, 3, 0], v[:, 3, 1] = np.inf, np.nan, -np.inf
    got = ge.ops.flash_attention_backward(dout, q, k, v, out, lse, 2, attn_mask=keep)
    for a, b in zip(got[:3], want[:3], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lse": np.zeros((1, 6, 2))}, "lse must be"),
        ({"out": np.zeros((1, 6, 2, 5))}, "out must be"),
        ({"dout": np.zeros((1, 5, 2, 4))}, "dout must be"),
        ({"blocks": 3}, "blocks"),
    ],
)
def test_mistakes_are_named(change, said):
    q = np.ones((1, 6, 2, 4))
    out, lse = ge.ops.flash_attention(q, q, q, 2, return_lse=True)
    good = {"dout": out, "query": q, "key": q, "value": q, "out": out, "lse": lse, "head_num": 2}
    ge.ops.flash_attention_backward(**good)
    with pytest.raises(ge.UsageError, match=said):
        ge.ops.flash_attention_backward(**{**good, **change})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_torch(dtype, causal, groups):
    torch = pytest.importorskip("torch", reason="for development only")
    rng = np.random.default_rng(groups)
    q, dout = (rng.normal(size=(2, 6, 130, 32)).astype(dtype) for _ in range(2))
    k, v = (rng.normal(size=(2, groups, 130, 32)).astype(dtype) for _ in range(2))
    tq, tk, tv = (torch.tensor(a, requires_grad=True) for a in (q, k, v))
    wide = (a.repeat_interleave(6 // groups, dim=1) for a in (tk, tv))
    want = torch.nn.functional.scaled_dot_product_attention(tq, *wide, is_causal=causal)
    want.backward(torch.tensor(dout))
    options = {"input_layout": "BNSD", "is_causal": causal}
    out, lse = ge.ops.flash_attention(q, k, v, 6, return_lse=True, **options)
    got = ge.ops.flash_attention_backward(dout, q, k, v, out, lse, 6, **options)
    near = {"rtol": 0, "atol": 2e-5 if dtype == np.float32 else 1e-12}
    np.testing.assert_allclose(out, want.detach().numpy(), **near)
    for mine, theirs in zip(got[:3], (tq, tk, tv), strict=True):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), **near)


@pytest.mark.parametrize("softcap", [None, 2000.0])
@pytest.mark.parametrize("size", [1, 30, 300])
def test_large_scores_are_as_exact_as_small_ones(size, softcap):
    rng = np.random.default_rng(2)
    q, k = (size * rng.normal(size=(1, 20, 4, 16)).astype(np.float32) for _ in range(2))
    k, v, dout = k[:, :, :2], rng.normal(size=(1, 20, 2, 16)), rng.normal(size=(1, 20, 4, 16))
    q[:, :, 3] /= size  # a head with small scores beside them
    arrays = [a.astype(np.float32) for a in (q, k, v, dout)]

    def gradients(dtype):
        query, key, value, d = (a.astype(dtype) for a in arrays)
        options = {"softcap": softcap, "block_size_k": 8, "block_size_q": 8}
        out, lse = ge.ops.flash_attention(query, key, value, 4, return_lse=True, **options)
        return ge.ops.flash_attention_backward(d, query, key, value, out, lse, 4, **options)

    narrow, wide = gradients(np.float32), gradients(np.float64)
    np.testing.assert_allclose(narrow.value, wide.value, atol=6e-6)
    np.testing.assert_allclose(narrow.query, wide.query, atol=4e-6 * size)
    np.testing.assert_allclose(narrow.key, wide.key, atol=4e-6 * size)
