"""The tiled attention kernel against attention written out in float64."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from gecompiler.backends.kernels.attention import flash_attention
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention

PLAIN = FlashAttention(scale=1.0, q_heads=1, kv_heads=1)


def written_out(q, k, v, mask, sinks, attrs, dtype=np.float64):
    """The definition, one row at a time, in ``dtype``."""
    q, k, v = (np.asarray(a, dtype) for a in (q, k, v))
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    repeats = heads // k.shape[1]
    offset = keys - queries if attrs.align == "bottom_right" else 0
    full = (batch, heads, queries, keys)
    boolean = mask is not None and mask.dtype == np.bool_
    permitted = np.broadcast_to(mask, full) if boolean else np.ones(full, bool)
    bias = np.zeros(full) if mask is None or boolean else np.broadcast_to(mask, full)
    out = np.zeros((batch, heads, queries, v.shape[3]), dtype)
    for b, h, i in np.ndindex(batch, heads, queries):
        kb = b if k.shape[0] > 1 else 0
        kh, vh = k[kb, h // repeats], v[kb, h // repeats]
        allowed = [
            j
            for j in range(keys)
            if permitted[b, h, i, j]
            and (attrs.window_left < 0 or j - i - offset >= -attrs.window_left)
            and (attrs.window_right < 0 or j - i - offset <= attrs.window_right)
        ]
        scores = attrs.scale * (kh[allowed] @ q[b, h, i])
        if attrs.softcap > 0:
            scores = attrs.softcap * np.tanh(scores / attrs.softcap)
        scores = scores + bias[b, h, i, allowed].astype(dtype)
        if sinks is not None and np.isfinite(sinks[h]):
            top = max(np.max(scores, initial=-np.inf), sinks[h])
            weights = np.exp(scores - top)
            out[b, h, i] = weights @ vh[allowed] / (weights.sum() + np.exp(sinks[h] - top))
        elif not allowed or np.all(scores == -np.inf):
            nothing = {"nan": np.nan, "zero": 0.0, "mean": vh.mean(axis=0) if keys else 0.0}
            lost = np.nan if allowed and attrs.masked_row == "mean" else nothing[attrs.masked_row]
            out[b, h, i] = lost if keys else 0.0
        else:
            weights = np.exp(scores - scores.max())
            out[b, h, i] = weights @ vh[allowed] / weights.sum()
    return out


def unfused(q, k, v, attrs):
    """What numpy users write: the whole score matrix in float32, no mask."""
    scores = np.matmul(q * np.float32(attrs.scale), k.swapaxes(-1, -2))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores @ v


@st.composite
def problems(draw):
    groups, repeats = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    heads, batch = groups * repeats, draw(st.integers(1, 2))
    queries, keys = draw(st.integers(0, 9)), draw(st.integers(0, 11))
    width, value_width = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1.0, 30.0, 1e4]))
    attrs = FlashAttention(
        scale=draw(st.sampled_from([1.0, 0.3, -0.5, 0.0])),
        q_heads=heads,
        kv_heads=groups,
        softcap=draw(st.sampled_from([0.0, 0.0, 5.0])),
        window_left=draw(st.sampled_from([-1, -1, 0, 2, 5])),
        window_right=draw(st.sampled_from([-1, 0, 0, 3])),
        align=draw(st.sampled_from(["top_left", "bottom_right"])),
        masked_row=draw(st.sampled_from(["nan", "zero", "mean"])),
    )
    kv_batch = draw(st.sampled_from([1, batch]))
    q = rng.normal(size=(batch, heads, queries, width)) * size
    k = rng.normal(size=(kv_batch, groups, keys, width))
    v = rng.normal(size=(kv_batch, groups, keys, value_width))
    full = (batch, heads, queries, keys)
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.sampled_from([1, n])) for n in full[4 - rank :])
    kind = draw(st.sampled_from(["none", "bool", "float", "-inf"]))
    mask = {
        "none": lambda: None,
        "bool": lambda: rng.random(shape) < draw(st.sampled_from([0.05, 0.5, 0.95])),
        "float": lambda: rng.normal(size=shape),
        "-inf": lambda: np.where(rng.random(shape) < 0.5, 0.0, -np.inf),
    }[kind]()
    sinks = rng.normal(size=heads) * size if draw(st.booleans()) else None
    blocks = draw(st.sampled_from([(1, 1), (2, 3), (4, 2), (64, 64)]))
    return q, k, v, mask, sinks, attrs, blocks


def as_type(arrays, dtype):
    return [a if a is None or a.dtype == np.bool_ else np.asarray(a).astype(dtype) for a in arrays]


@settings(max_examples=250, deadline=None)
@given(problems())
def test_float64_agrees_with_the_definition(problem):
    *arrays, attrs, (block_q, block_k) = problem
    got = flash_attention(*arrays, attrs=attrs, block_q=block_q, block_k=block_k)
    want = written_out(*arrays, attrs)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]))
def test_narrow_types_are_as_exact_as_unfused_float32(problem, dtype):
    *arrays, attrs, (block_q, block_k) = problem
    arrays = as_type(arrays, dtype)
    got = flash_attention(*arrays, attrs=attrs, block_q=block_q, block_k=block_k)
    assert got.dtype == dtype
    exact = written_out(*arrays, attrs)
    plain = written_out(*arrays, attrs, np.float32).astype(dtype).astype(np.float64)
    assert np.array_equal(np.isnan(got.astype(np.float64)), np.isnan(exact))
    error, allowed = np.abs(got - exact), np.abs(plain - exact)
    rounding = float(ml_dtypes.finfo(dtype).eps) * np.nanmax(np.abs(exact), initial=0)
    assert np.nanmax(error, initial=0) <= 2 * np.nanmax(allowed, initial=0) + rounding + 1e-5


@settings(max_examples=60, deadline=None)
@given(problems())
def test_grouped_heads_equal_expanded_heads(problem):
    q, k, v, mask, sinks, attrs, (block_q, block_k) = problem
    repeats = attrs.q_heads // attrs.kv_heads
    got = flash_attention(q, k, v, mask, sinks, attrs=attrs, block_q=block_q, block_k=block_k)
    wide = flash_attention(
        q,
        np.repeat(k, repeats, axis=1),
        np.repeat(v, repeats, axis=1),
        mask,
        sinks,
        attrs=replace(attrs, kv_heads=attrs.q_heads),
        block_q=block_q,
        block_k=block_k,
    )
    np.testing.assert_allclose(got, wide, rtol=1e-12, atol=1e-12)


class Watched(np.ndarray):
    """An array that notes which positions of axis 2 are read."""

    def __array_finalize__(self, parent):
        self.read = getattr(parent, "read", set())

    def __getitem__(self, index):
        if isinstance(index, tuple) and len(index) == 3 and self.ndim == 4:
            self.read |= set(range(*index[2].indices(self.shape[2])))
        return super().__getitem__(index)


def watched(shape):
    array = np.ones(shape, np.float32).view(Watched)
    array.read = set()
    return array


@pytest.mark.parametrize(
    ("attrs", "mask", "expected"),
    [
        (replace(PLAIN, window_right=0), None, range(8)),
        (replace(PLAIN, window_right=0, align="bottom_right"), None, range(20)),
        (replace(PLAIN, window_left=1, window_right=0), None, range(8)),
        (replace(PLAIN, window_left=2, window_right=0, align="bottom_right"), None, range(8, 20)),
        (PLAIN, np.arange(20) >= 13, range(12, 20)),
    ],
)
def test_blocks_that_nothing_attends_are_not_read(attrs, mask, expected):
    q, k, v = np.ones((1, 1, 8, 4), np.float32), watched((1, 1, 20, 4)), watched((1, 1, 20, 4))
    flash_attention(q, k, v, mask, attrs=attrs, block_q=4, block_k=4)
    assert k.read == v.read == set(expected)


def test_values_of_masked_keys_do_not_matter_even_when_not_finite():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 2, 6, 4)).astype(np.float32) for _ in range(3))
    attrs = replace(PLAIN, q_heads=2, kv_heads=2, window_right=0)
    want = flash_attention(q, k, v, attrs=attrs)
    k[:, :, 3, 0], v[:, :, 3, 0], v[:, :, 4, 1] = np.nan, np.inf, np.nan
    got = flash_attention(q, k, v, attrs=attrs)
    np.testing.assert_array_equal(got[:, :, :3], want[:, :, :3])
    assert np.isnan(got[:, :, 3:]).any(axis=-1).all()


def test_scores_of_ten_thousand_do_not_overflow():
    q = np.full((1, 1, 3, 1), 1e4, np.float32)
    k = np.array([1.0, 0.999, -1.0], np.float32).reshape(1, 1, 3, 1)
    v = np.array([1.0, 2.0, 3.0], np.float32).reshape(1, 1, 3, 1)
    np.testing.assert_allclose(
        flash_attention(q, k, v, attrs=PLAIN), written_out(q, k, v, None, None, PLAIN), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"q": np.ones((2, 3, 4), np.float32)}, "must be 4D"),
        ({"k": np.ones((1, 2, 5, 3), np.float32)}, "do not fit together"),
        ({"v": np.ones((1, 2, 6, 4), np.float32)}, "do not fit together"),
        ({"mask": np.ones((3, 5), bool)}, "does not broadcast"),
        ({"mask": np.ones((4, 5), np.int64)}, "cast an integer mask"),
        ({"sinks": np.ones(3, np.float32)}, "one per query head"),
        ({"q": np.ones((1, 0, 4, 4), np.float32)}, "0 query heads"),
        ({"q": np.ones((1, 6, 4, 4), np.float32)}, "expected 4 query"),
        ({"block_q": 0}, "block sizes"),
        ({"v": np.ones((1, 2, 5, 4), np.int32)}, "float type"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change, said):
    good = {
        "q": np.ones((1, 4, 4, 4), np.float32),
        "k": np.ones((1, 2, 5, 4), np.float32),
        "v": np.ones((1, 2, 5, 4), np.float32),
        "mask": None,
        "sinks": None,
        "attrs": FlashAttention(1.0, 4, 2),
    }
    flash_attention(**good)
    with pytest.raises(UsageError, match=said):
        flash_attention(**{**good, **change})
