"""What callers get wrong, and scores, lengths and parts at the edge of what there is."""

from __future__ import annotations

import numpy as np
import pytest

import gecompiler as ge
from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.kernels.attention import attend
from gecompiler.backends.kernels.attention_check import Place
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ops import paged_attention


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


QUERY, KEY, VALUE = normal(2, 10, 4, 8), normal(2, 12, 2, 8), normal(2, 12, 2, 8)


@pytest.mark.parametrize(
    ("dtype", "size"), [("f2", 6e4), ("f4", 3e8), ("f4", 1e30), ("f4", 3e38), ("f8", 1e150)]
)
def test_equal_scores_of_any_size_give_the_mean(dtype, size):
    q, k = np.full((1, 4, 1, 8), size, dtype), np.full((1, 50, 1, 8), size, dtype)
    v = normal(1, 50, 1, 8).astype(dtype)
    out = ge.ops.flash_attention(q, k, v, 1, block_size_k=16)
    mean = v.astype(np.float64).mean(axis=1, keepdims=True)
    exact = 5e-4 if dtype == "f2" else 1e-7
    np.testing.assert_allclose(out, np.broadcast_to(mean, out.shape), atol=exact)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("ranks", [None, 4])
def test_large_scores_against_float64(size, ranks):
    q, k, v = size * normal(1, 40, 2, 16), size * normal(1, 40, 2, 16, seed=1), normal(1, 40, 2, 16)
    k[:, 20:] = k[:, :20]  # the largest score twice, in two parts
    if ranks is None:
        out = ge.ops.flash_attention(q, k, v, 2, block_size_k=16)
    else:
        out = ge.ops.sequence_parallel(q, k, v, 2, ranks, "ring").out
    wide_q, wide_k, wide_v = (a.astype(np.float64).swapaxes(1, 2) for a in (q, k, v))
    scores = wide_q @ wide_k.swapaxes(-1, -2) / 4
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    want = weights / weights.sum(axis=-1, keepdims=True) @ wide_v
    np.testing.assert_allclose(out.swapaxes(1, 2), want, atol=2e-6)


@pytest.mark.parametrize("queries", [1, 3, 7, 30])
@pytest.mark.parametrize("window", [(-1, 0), (5, 3), (0, 0), (40, -1)])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_queries_dealt_give_the_bits_of_one_device(queries, window, align):
    q, k, v = normal(1, 4, 37, 8), normal(1, 2, 41, 8), normal(1, 2, 41, 8)
    attrs = FlashAttention(0.3, 4, 2, 0.0, *window, align, masked_row="zero")
    blocks = Blocks(6, 5)
    whole = attend(q, k, v, attrs=attrs, blocks=blocks).out
    shift = 41 - 37 if align == "bottom_right" else 0
    for first in range(0, 37, queries):
        place = Place(first + shift, 37)
        rows = slice(first, first + queries)
        part = attend(q[:, :, rows], k, v, attrs=attrs, blocks=blocks, place=place).out
        np.testing.assert_array_equal(part, whole[:, :, rows])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 10**400}, "scale must be a finite number"),
        ({"softcap": 10**400}, "softcap must be a finite number"),
        ({"block_size_k": 2**70}, "block_size_k must be a positive integer"),
        ({"block_size_q": 2**70}, "block_size_q must be a positive integer"),
        ({"device": 3}, "a device is a name"),
        ({"device": "no such"}, "no device 'no such'"),
        ({"attn_mask": np.ones((2, 10, 12), bool)}, r"mask\[:, None\]"),
        ({"attn_mask": np.ones((2, 12), bool)}, r"mask\[:, None, None, :\]"),
    ],
)
def test_mistakes_are_named(options, said):
    with pytest.raises(UsageError, match=said):
        ge.ops.flash_attention(QUERY, KEY, VALUE, 4, **options)


def test_windows_wider_than_anything_bound_nothing():
    whole = ge.ops.flash_attention(QUERY, KEY, VALUE, 4)
    for window in (2**70, (2**70, 2**40), (-1, None), -1):
        found = ge.ops.flash_attention(QUERY, KEY, VALUE, 4, window=window)
        np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("device", ["npu", "npu:0", "npu:7"])
def test_a_card_is_the_device_set(device):
    _, found = ge.ops.flash_attention(QUERY, KEY, VALUE, 4, return_counters=True, device=device)
    assert found.device == ge.default_session().device().name
    with pytest.raises(UsageError, match="no device"):
        ge.ops.flash_attention(QUERY, KEY, VALUE, 4, device=device + "x")


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((1, 2**40, 64, 128), "more than 16777216 blocks"),
        ((1, 2**60, 64, 128), "a shape must be of whole numbers"),
        ((1, 1.5, 64, 128), "a shape must be of whole numbers"),
        (5, "a shape must be of whole numbers"),
    ],
)
def test_shapes_that_cannot_be_counted(shape, said):
    for count in (
        lambda: ge.ops.attention_counters(shape, (1, 8, 8, 128), head_num=64),
        lambda: ge.ops.parallel_counters("ring", shape, (1, 8, 8, 128), head_num=64, ranks=2),
    ):
        with pytest.raises(UsageError, match=said):
            count()


def test_choices_are_checked_whatever_the_algorithm():
    shapes = (1, 64, 8, 16), (1, 64, 8, 16)
    for wrong in ({"kv": "no"}, {"combine": "no"}, {"placement": "no"}):
        for algorithm in ("ring", "heads"):
            with pytest.raises(UsageError, match="'no' is not known"):
                ge.ops.parallel_counters(algorithm, *shapes, head_num=8, ranks=2, **wrong)
    with pytest.raises(UsageError, match="more than the 1024"):
        ge.ops.parallel_counters("ring", *shapes, head_num=8, ranks=10**9)


def test_lengths_with_and_without_a_leading_0_are_the_same():
    q, k, v = normal(10, 4, 8), normal(12, 2, 8), normal(12, 2, 8)
    mask = np.random.default_rng(1).random((3, 1, 6, 6)) < 0.7

    def run(q_ends, k_ends, **options):
        return ge.ops.flash_attention(
            q, k, v, 4, input_layout="TND", actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends,
            **options,
        )  # fmt: skip

    want = run([4, 4, 10], [0, 6, 12], attn_mask=mask)
    np.testing.assert_array_equal(run([0, 4, 4, 10], [0, 0, 6, 12], attn_mask=mask), want)
    # 0 ends the first sequence where the mask says that there is one
    first = run([0, 4, 10], [0, 6, 12], attn_mask=mask)
    np.testing.assert_array_equal(first, run([0, 0, 4, 10], [0, 0, 6, 12], attn_mask=mask))
    np.testing.assert_array_equal(run([4, 10], [0, 6, 12]), run([4, 10], [6, 12]))


def test_a_sequence_named_may_get_no_tokens():
    config = paged_attention.PagedAttentionConfig(4, 8, 4, 8, np.float32, kv_heads=2)
    cache = paged_attention.PagedKVCache(config, device="npu:0")
    k, v = normal(5, 2, 8), normal(5, 2, 8, seed=1)
    cache.append(k, v, ["a", "b"], "TND", actual_seq_len=[0, 5])
    assert (cache.length("a"), cache.length("b")) == (0, 5)
    cache.append(k, v, ["b"], "TND", actual_seq_len=[0, 5])
    assert cache.length("b") == 10
    assert cache.page_tables("b").shape == (1, 3)
    out = paged_attention.flash_attention_with_paged_kv(
        normal(1, 4, 8), cache, 4, ["a", "b"], "TND", actual_seq_qlen=[0, 1]
    )
    want = paged_attention.flash_attention_with_paged_kv(normal(1, 1, 4, 8), cache, 4, "b")
    np.testing.assert_array_equal(out, want[0])


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda cache: cache.fork(0, 1, True), "not True"),
        (lambda cache: cache.holders("a"), "pages 0 to 7, not 'a'"),
        (lambda cache: cache.free(0), "append\\(\\) begins a sequence"),
        (
            lambda _: paged_attention.flash_attention_with_paged_kv(QUERY, None, 4),
            "kv_cache must be",
        ),
        (
            lambda c: paged_attention.flash_attention_with_paged_kv(QUERY, c, "4"),
            "head_num is '4'",
        ),
    ],
)
def test_mistakes_with_caches_are_named(mistake, said):
    config = paged_attention.PagedAttentionConfig(4, 8, 4, 8, np.float32, kv_heads=2)
    cache = paged_attention.PagedKVCache(config)
    if said == "not True":
        cache.append(KEY[:1], VALUE[:1])
    with pytest.raises(UsageError, match=said):
        mistake(cache)
