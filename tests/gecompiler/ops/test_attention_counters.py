"""Counters against the formulas, and against arrays that count what is read of them."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from attention_problems import allowed_keys, into, random_problem

import gecompiler as ge
from gecompiler.backends.cost.attention_tiles import Blocks, Problem, hbm_traffic


class Metered(np.ndarray):
    """An array that adds up the bytes of the parts of it that are taken, and notes the keys."""

    def __array_finalize__(self, parent):
        self.meter = getattr(parent, "meter", None)

    def __getitem__(self, index):
        part = super().__getitem__(index)
        if self.meter is not None and self.ndim == 4 and isinstance(index, tuple):
            self.meter["bytes"] += part.nbytes
            span = index[2] if len(index) > 2 else slice(None)
            self.meter["keys"] |= set(range(*span.indices(self.shape[2])))
        return part


def metered(array):
    found = array.view(Metered)
    found.meter = {"bytes": 0, "keys": set()}
    return found


def metered_call(q, k, v, heads, groups, **options):
    """(counters, bytes read of K, of V, keys read) of a call in layout BNSD."""
    k, v = metered(k), metered(v)
    _, counters = ge.ops.flash_attention(
        q, k, v, heads, groups, "BNSD", return_counters=True, **options
    )
    assert k.meter["keys"] == v.meter["keys"]
    return counters, k.meter["bytes"], v.meter["bytes"], k.meter["keys"]


@pytest.mark.parametrize("seed", range(150))
def test_what_is_read_is_the_formula_of_the_loop_order(seed):
    rng = np.random.default_rng(seed)
    batch, groups, repeats = (int(n) for n in rng.integers(1, 4, 3))
    queries, keys = (int(n) for n in rng.integers(1, 200, 2))
    width, value_width = (int(n) for n in rng.choice([4, 8, 16], 2))
    heads = groups * repeats
    dtype = np.dtype(rng.choice(["float32", "float16"]))
    q = rng.normal(size=(batch, heads, queries, width)).astype(dtype)
    k = rng.normal(size=(batch, groups, keys, width)).astype(dtype)
    v = rng.normal(size=(batch, groups, keys, value_width)).astype(dtype)
    left, right = (int(n) for n in rng.choice([-1, 0, 5, 40], 2))
    align = str(rng.choice(["top_left", "bottom_right"]))
    blocks = Blocks(*(int(n) for n in rng.choice([5, 16, 32, 64], 2)))
    counters, k_bytes, v_bytes, _ = metered_call(
        q, k, v, heads, groups, window=(left, right), causal_align=align,
        block_size_q=blocks.queries, block_size_k=blocks.keys, return_lse=False,
    )  # fmt: skip
    offset = keys - queries if align == "bottom_right" else 0
    problem = Problem(batch, heads, groups, queries, keys, width, value_width, left, right, offset)
    want = hbm_traffic(problem, blocks, dtype.itemsize)
    reads, writes = dict(counters.reads), dict(counters.writes)
    assert (reads["query"], writes["out"]) == (want.q, want.out)
    assert (reads.get("key", 0), reads.get("value", 0)) == (want.k, want.v)
    assert (k_bytes, v_bytes) == (want.k, want.v)
    assert (counters.tiles, counters.tiles_skipped) == (want.steps, want.skipped)


@pytest.mark.parametrize("seed", range(150))
def test_tiles_that_nothing_attends_are_not_read_whatever_leaves_them_empty(seed):
    p = random_problem(np.random.default_rng(3000 + seed)).typed(np.float32)
    o, (batch, groups) = p.options, p.k.shape[:2]
    if o.get("attn_mask") is not None and o["attn_mask"].dtype != bool:
        o["attn_mask"] = o["attn_mask"] > 0
    heads, repeats = p.q.shape[1], p.q.shape[1] // groups
    counters, k_bytes, v_bytes, _ = metered_call(p.q, p.k, p.v, heads, groups, **o)
    allowed = allowed_keys(p).reshape(batch, groups, repeats, *p.q.shape[2:3], p.k.shape[2])
    bq, bk = o["block_size_q"], o["block_size_k"]
    keys = tiles = pairs = masked = 0
    for i in range(0, p.q.shape[2], bq):
        for j in range(0, p.k.shape[2], bk):
            tile = allowed[..., i : i + bq, j : j + bk]
            done = tile.any(axis=(2, 3, 4))
            tiles += done.sum()
            keys += done.sum() * tile.shape[4]
            pairs += done.sum() * tile[0, 0].size
            masked += (done & ~tile.all(axis=(2, 3, 4))).sum()
    exact = o.get("window") is None and "is_causal" not in o  # else bands: touched, not empty
    if exact or not any(o.get(n) is not None for n in ("attn_mask", "atten_mask", "block_mask")):
        assert counters.tiles == tiles
        assert counters.tiles_masked == masked
        assert counters.flops == 2 * pairs * (p.q.shape[3] + p.v.shape[3])
    else:
        assert counters.tiles >= tiles
    reads = dict(counters.reads)
    assert (k_bytes, v_bytes) == (reads.get("key", 0), reads.get("value", 0))
    if exact:
        assert k_bytes == keys * p.k.shape[3] * 4
    everything = 2 * batch * heads * p.q.shape[2] * p.k.shape[2] * (p.q.shape[3] + p.v.shape[3])
    assert counters.flops + counters.flops_skipped == everything


def test_skipped_blocks_may_hold_anything():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 256, 2, 8)).astype(np.float32) for _ in range(3))
    options = {"block_size_q": 32, "block_size_k": 32, "is_causal": True, "window": 40}
    want = ge.ops.flash_attention(q[:, 128:160], k, v, 2, causal_align="top_left", **options)
    k[:, 64:], v[:, 64:] = np.nan, np.nan
    got = ge.ops.flash_attention(q[:, 128:160], k, v, 2, causal_align="top_left", **options)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", ["BSND", "BNSD", "BSH", "SBH"])
def test_the_same_counters_without_arithmetic(layout):
    rng = np.random.default_rng(5)
    mask = rng.random((300, 260)) < 0.01
    q = rng.normal(size=(2, 6, 300, 16)).astype(np.float16)
    k, v = (rng.normal(size=(2, 2, 260, n)).astype(np.float16) for n in (16, 8))
    arrays = [into(a, layout) for a in (q, k, v)]
    options = {"kv_head_num": 2, "input_layout": layout, "attn_mask": mask, "softcap": 30.0}
    options |= {"block_size_q": 32, "block_size_k": 128, "device": "ascend910b"}
    out, lse, want = ge.ops.flash_attention(
        *arrays, 6, return_lse=True, return_counters=True, **options
    )
    shapes = [a.shape for a in arrays]
    got = ge.ops.attention_counters(*shapes, head_num=6, return_lse=True, **options)
    assert got == want
    del options["device"]
    _, want = ge.ops.flash_attention_backward(
        out, *arrays, out, lse, 6, return_counters=True, **options
    )
    got = ge.ops.attention_counters(*shapes, head_num=6, backward=True, **options)
    assert got == want
    assert got.flops > 2 * ge.ops.attention_counters(*shapes, head_num=6, **options).flops


def test_asking_allocates_nothing_of_the_arrays_size():
    tracemalloc.start()
    try:
        for layout, q, k in (
            ("BSND", (1, 32768, 64, 128), (1, 32768, 8, 128)),
            ("BSH", (1, 32768, 8192), (1, 32768, 1024)),
            ("SBH", (32768, 1, 8192), (32768, 1, 1024)),
        ):
            ge.ops.attention_counters(q, k, head_num=64, input_layout=layout, window=4096)
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


def article(**options):
    """The counters of the second article's case: 32K tokens, 64 heads of 128."""
    q, k = (1, 32768, 64, 128), (1, 32768, 8, 128)
    options |= {"block_size_q": 128, "block_size_k": 128}
    return ge.ops.attention_counters(q, k, head_num=64, **options)


def test_what_a_window_skips_of_the_articles_matrix():
    assert article(window=4096).skipped_fraction == pytest.approx(0.766, abs=0.01)
    causal = article(is_causal=True)
    both = article(window=4096, is_causal=True)
    assert both.skipped_fraction == pytest.approx(0.88, abs=0.01)
    assert 1 - both.flops / causal.flops == pytest.approx(0.766, abs=0.01)
    assert article().flops_skipped == 0


def test_larger_blocks_read_less_and_overflow():
    def counters(block):
        q = (1, 4096, 64, 128)
        return ge.ops.attention_counters(q, q, head_num=64, block_size_q=block, block_size_k=block)

    small, middle, large = (counters(b) for b in (64, 128, 256))
    assert not small.overflows
    assert not middle.overflows
    assert large.overflows
    assert dict(small.reads)["key"] == 2 * dict(middle.reads)["key"]
    assert middle.time_us < small.time_us
    assert middle.time_us < large.time_us
    assert middle.cube_utilisation > small.cube_utilisation
    assert small.sram_peak_bytes < middle.sram_peak_bytes <= middle.sram_bytes


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (50, 0)}])
def test_bandwidth_covers_the_time_and_stays_below_the_devices(options):
    shape = (2, 777, 8, 64)
    c = ge.ops.attention_counters(shape, shape, head_num=8, **options)
    ends = [0.0, *(s.end_us for s in c.bandwidth)]
    assert [s.start_us for s in c.bandwidth] == ends[:-1]
    assert ends[-1] == pytest.approx(c.time_us)
    assert all(0 <= s.utilisation <= 1 + 1e-9 for s in c.bandwidth)
    assert 0 < c.cube_utilisation <= 1


def test_unknown_devices_types_and_options():
    shape = (1, 8, 2, 4)
    with pytest.raises(ge.UsageError, match="ascend"):
        ge.ops.attention_counters(shape, shape, head_num=2, device="ascend91")
    with pytest.raises(ge.UsageError, match="dtype"):
        ge.ops.attention_counters(shape, shape, head_num=2, dtype="f17")
    with pytest.raises(ge.UsageError, match="block_size_q"):
        ge.ops.attention_counters(shape, shape, head_num=2, block_size=3)
    for wrong in ("abcd", (1, -8, 2, 4), (1, 8.0, 2, 4)):
        with pytest.raises(ge.UsageError, match="whole numbers"):
            ge.ops.attention_counters(wrong, shape, head_num=2)


@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 5, 2, 4), (0, 5, 2, 4)],
        [(1, 0, 2, 4), (1, 5, 2, 4)],
        [(1, 5, 2, 4), (1, 0, 2, 4)],
        [(1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 0)],
    ],
)
def test_nothing_to_do_counts_as_nothing(shapes):
    mask = np.ones((shapes[0][1], shapes[1][1]), bool)
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        c = ge.ops.attention_counters(*shapes, head_num=2, **options)
        assert c.flops_skipped == 0 or "is_causal" in options
        arrays = [np.ones(s, np.float16) for s in (*shapes, shapes[-1])[:3]]
        out, lse, same = ge.ops.flash_attention(
            *arrays, 2, return_lse=True, return_counters=True, **options
        )
        assert out.shape == (*arrays[0].shape[:3], arrays[2].shape[3])
        assert lse.shape == (shapes[0][0], 2, shapes[0][1])
        assert (same.flops, same.tiles) == (c.flops, c.tiles)


_MEMORY = """
import resource, numpy as np, gecompiler as ge
q, k, v = (np.empty((1, 32768, 8, 128), np.{dtype}) for _ in range(3))
for i, a in enumerate((q, k, v)):
    rng = np.random.default_rng(i)
    for first in range(0, 32768, 512):
        a[:, first : first + 512] = rng.standard_normal((1, 512, 8, 128), np.float32)
out = ge.ops.flash_attention(q, k, v, 8)
assert np.isfinite(out[:, ::1000].astype(np.float32)).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_32k_tokens_and_8_heads_of_128_fit_a_gibibyte(dtype):
    run = [sys.executable, "-c", _MEMORY.format(dtype=dtype)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 <= 2**30


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 8])
def test_forward_takes_at_most_three_times_as_long_as_unfused(heads):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, heads, 4096, 128)).astype(np.float32) for _ in range(3))

    def unfused():
        scores = np.matmul(q, k.swapaxes(-1, -2)) * np.float32(128**-0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return scores @ v

    def fused():
        return ge.ops.flash_attention(q, k, v, heads, input_layout="BNSD")

    def best(function):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(fused) <= 3 * best(unfused)
