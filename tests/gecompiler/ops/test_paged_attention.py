"""Attention over pages: to the bit that over contiguous keys, and what is read for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_problems import assert_same, into, random_problem, unfused

import gecompiler as ge
from gecompiler.ir.errors import UsageError
from gecompiler.ops import paged_attention
from gecompiler.ops.paged_attention import ContiguousKVCache, PagedAttentionConfig, PagedKVCache


def shuffled(cache, rng):
    """Takes pages for others first, so that those of the next sequences lie in any order."""
    config = cache.config
    for name in range(1000, 1006):
        count = int(rng.integers(0, 3 * config.page_size))
        shapes = [(1, count, config.kv_head_num, w) for w in (config.head_dim, config.value_dim)]
        cache.append(*(np.full(shape, np.nan, config.element_type) for shape in shapes), name)
    for name in rng.permutation(np.arange(1000, 1006)).tolist():
        cache.free(name)
    return cache


def filled(p, page_size, rng):
    """A cache with the keys and values of a problem, appended in parts."""
    groups, keys = p.k.shape[1:3]
    pages = p.k.shape[0] * -(-keys // page_size) + 40
    config = PagedAttentionConfig(
        p.q.shape[1], p.k.shape[3], page_size, pages, p.k.dtype, groups, p.v.shape[3]
    )
    cache = shuffled(PagedKVCache(config), rng)
    first = 0
    while first < keys:
        last = min(keys, first + int(rng.integers(1, 40)))
        cache.append(p.k[:, :, first:last], p.v[:, :, first:last], input_layout="BNSD")
        first = last
    return cache


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("seed", range(60))
def test_pages_of_any_size_give_the_bits_of_contiguous_keys(seed, dtype):
    rng = np.random.default_rng(seed)
    p = random_problem(rng).typed(np.dtype(dtype))
    p.options.pop("block_mask", None)
    p.options.setdefault("causal_align", "top_left")
    heads, groups = p.q.shape[1], p.k.shape[1]
    layout = str(rng.choice(["BSND", "BNSD", "BSH", "SBH"]))
    q = into(p.q, layout)
    options = {"input_layout": layout, "return_lse": True, "return_counters": True, **p.options}
    want, want_lse, counters = ge.ops.flash_attention(
        q, into(p.k, layout), into(p.v, layout), heads, groups, **options
    )
    cache = filled(p, int(rng.choice([1, 5, 16, 64])), rng)
    found, lse, paged = paged_attention.flash_attention_with_paged_kv(q, cache, heads, **options)
    assert_same(found, want)
    assert_same(lse, want_lse)
    assert (paged.flops, paged.tiles, paged.hbm_write_bytes) == (
        counters.flops,
        counters.tiles,
        counters.hbm_write_bytes,
    )
    reads = dict(paged.reads)
    assert (reads.get("key"), reads.get("value")) == (
        dict(counters.reads).get("key"),
        dict(counters.reads).get("value"),
    )


def test_numbers_of_sequences_of_various_lengths_against_the_definition():
    rng = np.random.default_rng(0)
    config = PagedAttentionConfig(4, 8, page_size=4, max_num_pages=64, dtype="float32", kv_heads=2)
    cache, held = shuffled(PagedKVCache(config), rng), {}
    queries = {"a": 3, "b": 0, "c": 7, "d": 1}
    for name, count in (("a", 21), ("b", 5), ("c", 7), ("d", 64)):
        held[name] = [rng.normal(size=(count, 2, 8)).astype(np.float32) for _ in range(2)]
        cache.append(*held[name], name, "TND")
    q = rng.normal(size=(sum(queries.values()), 4, 8)).astype(np.float32)
    ends = np.cumsum(list(queries.values())).tolist()
    out, lse = paged_attention.flash_attention_with_paged_kv(
        q, cache, 4, list(queries), "TND", is_causal=True, actual_seq_qlen=ends, return_lse=True
    )
    assert (out.shape, lse.shape) == ((11, 4, 8), (4, 11))
    first = 0
    for (name, count), last in zip(queries.items(), ends, strict=True):
        p = random_problem(rng)
        p.q = q[None, first:last].swapaxes(1, 2)
        p.k, p.v = (a[None].swapaxes(1, 2) for a in held[name])
        p.options = {"is_causal": True, "causal_align": "bottom_right"}
        if count:
            want = unfused(p, np.float64)[0].swapaxes(0, 1)
            np.testing.assert_allclose(out[first:last], want, atol=2e-6)
        first = last


def test_masks_are_cut_to_each_sequence():
    rng = np.random.default_rng(0)
    config = PagedAttentionConfig(2, 4, page_size=4, max_num_pages=64, dtype="float32")
    cache, lengths = PagedKVCache(config), (9, 14)
    for name, count in enumerate(lengths):
        cache.append(*rng.normal(size=(2, 1, count, 2, 4)).astype(np.float32), name)
    q = rng.normal(size=(2, 3, 2, 4)).astype(np.float32)
    for mask in (
        rng.random((2, 1, 3, 14)) < 0.6,
        rng.normal(size=(2, 2, 1, 14)).astype(np.float32),
        np.where(np.arange(14) < 7, 0.0, 1.0).astype(np.float32) * 0.5,
    ):
        found = paged_attention.flash_attention_with_paged_kv(q, cache, 2, attn_mask=mask)
        for i, count in enumerate(lengths):
            k, v = (a[None] for a in cache.gather(i))
            part = np.broadcast_to(mask, (2, 2, 3, 14))[i : i + 1, :, :, :count]
            want = ge.ops.flash_attention(q[i : i + 1], k, v, 2, attn_mask=part)
            assert_same(found[i : i + 1], want)
    with pytest.raises(UsageError, match="does not broadcast"):
        paged_attention.flash_attention_with_paged_kv(
            q, cache, 2, attn_mask=np.ones((2, 1, 3, 9), bool)
        )


@pytest.mark.parametrize(("page_size", "block"), [(16, 64), (64, 16), (16, 24)])
def test_skipped_tiles_read_neither_pages_nor_their_numbers(page_size, block):
    rng = np.random.default_rng(0)
    config = PagedAttentionConfig(2, 4, page_size, 512 // page_size, "float32")
    cache = PagedKVCache(config)
    k, v = rng.normal(size=(2, 1, 500, 2, 4)).astype(np.float32)
    cache.append(k, v)
    q = rng.normal(size=(1, 1, 2, 4)).astype(np.float32)
    far = cache.page_table(0)[: (500 - 100 - block) // page_size]
    cache.key_pages[far] = cache.value_pages[far] = np.nan  # a page that is read would show
    options = {"window": (99, 0), "causal_align": "bottom_right", "block_size_k": block}
    found, counters = paged_attention.flash_attention_with_paged_kv(
        q, cache, 2, return_counters=True, **options
    )
    assert_same(found, ge.ops.flash_attention(q, k, v, 2, **options))
    first = (500 - 100) // block
    tiles = [(b * block, min(500, (b + 1) * block)) for b in range(first, math.ceil(500 / block))]
    entries = sum(math.ceil(b / page_size) - a // page_size for a, b in tiles)
    assert dict(counters.reads)["page table"] == 4 * 2 * entries  # both KV heads


def test_a_contiguous_cache_is_read_in_place():
    rng = np.random.default_rng(0)
    config = PagedAttentionConfig(4, 8, page_size=4, max_num_pages=64, kv_heads=2)
    caches = PagedKVCache(config), ContiguousKVCache(config)
    for count in (50, 1, 1, 30):
        k, v = rng.normal(size=(2, 1, count, 2, 8)).astype(np.float16)
        for cache in caches:
            cache.append(k, v, "s")
    q = rng.normal(size=(1, 5, 4, 8)).astype(np.float16)
    found = [
        paged_attention.flash_attention_with_paged_kv(q, cache, 4, "s", return_counters=True)
        for cache in caches
    ]
    assert_same(found[0][0], found[1][0])
    assert "page table" in dict(found[0][1].reads)
    assert "page table" not in dict(found[1][1].reads)


def test_the_profiler_sees_the_call():
    config = PagedAttentionConfig(2, 4, page_size=4, max_num_pages=8, dtype="float32")
    cache = ge.ops.PagedKVCache(config=config)
    k, v = np.random.default_rng(0).normal(size=(2, 1, 10, 2, 4)).astype(np.float32)
    cache.append(k, v)
    with ge.profiler.profile(record_shapes=True) as prof:
        ge.ops.flash_attention_with_paged_kv(k, cache, 2)
    (call,) = prof.events()
    assert call.name == "flash_attention_with_paged_kv"
    assert call.shapes == ((1, 10, 2, 4), (8, 2, 4, 4), (8, 2, 4, 4), (1, 3))
    assert dict(call.counters.reads)["page table"] == 4 * 2 * 3


def test_the_articles_calls():
    key_tensor, value_tensor, query_tensor = np.zeros((3, 1, 40, 64, 128), np.float16)
    paged_config = paged_attention.PagedAttentionConfig(
        num_heads=64, head_dim=128, page_size=16, max_num_pages=2048, dtype=np.float16
    )
    kv_cache = paged_attention.PagedKVCache(config=paged_config, device="ascend910")
    kv_cache.append(key_tensor, value_tensor)
    output = paged_attention.flash_attention_with_paged_kv(
        query=query_tensor, kv_cache=kv_cache, head_num=64
    )
    assert output.shape == (1, 40, 64, 128)
    with pytest.raises(UsageError, match=r"8 heads.*\n.*") as raised:
        kv_cache.append(key_tensor[:, :, :8], value_tensor[:, :, :8])
    assert "kv_head" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_num": 4}, "head_num is 4, the cache is for 2"),
        ({"sequences": "x"}, "sequence 'x' is not cached"),
        ({"sequences": [0, 0]}, "2 sequences are named, the arrays hold 1"),
        ({"query": np.zeros((1, 3, 2, 5), np.float32)}, "wide"),
        ({"query": np.zeros((1, 3, 2, 4), np.float16)}, "types differ"),
        ({"input_layout": "XYZ"}, "input_layout 'XYZ'"),
        ({"actual_seq_qlen": [3]}, "layout TND"),
        ({"block_size_q": 0}, "block_size_q"),
        ({"sequences": 1.5}, "integer or text"),
    ],
)
def test_mistakes_are_named(change, message):
    config = PagedAttentionConfig(2, 4, page_size=4, max_num_pages=8, dtype="float32")
    cache = PagedKVCache(config)
    cache.append(*np.zeros((2, 1, 3, 2, 4), np.float32))
    arguments = {"query": np.zeros((1, 3, 2, 4), np.float32), "head_num": 2, **change}
    with pytest.raises(UsageError, match=message):
        paged_attention.flash_attention_with_paged_kv(kv_cache=cache, **arguments)
