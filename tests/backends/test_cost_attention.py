"""Fused attention: blocks, skipping, reuse, and how near it is to what was measured."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.cost.attention import (
    Attention,
    Blocks,
    attention_demand,
    blocks_need,
    fallback_blocks,
    fits,
)
from gecompiler.backends.device import Device, device_names, load_device
from gecompiler.ir.types import DType

A1, A2 = load_device("ascend910"), load_device("ascend910b")
DEVICES = [load_device(n) for n in device_names()]
ASCEND = [d for d in DEVICES if d.name.startswith("ascend")]
SERVERS = [d for d in ASCEND if d.name != "ascend310p"]


def square(length: int, heads: int = 1, **more: int) -> Attention:
    return Attention(1, heads, heads, length, length, 128, 128, DType.F16)._replace(**more)


def time_us(device: Device, a: Attention, blocks: Blocks | None = None) -> float:
    return device.alone_us(attention_demand(device, a, blocks))


MEASURED = [
    ("tuned", 2048, 32.46),
    ("tuned", 4096, 88.9),
    ("tuned", 8192, 292.6),
    ("tuned", 16384, 909.1),
    ("tuned", 32768, 3262.6),
    ("vendor", 8192, 353.1),
    ("vendor", 16384, 1118.5),
    ("vendor", 32768, 3646.2),
]


@pytest.mark.parametrize(("kernel", "length", "measured"), MEASURED)
def test_two_kernels_of_one_card(kernel: str, length: int, measured: float) -> None:
    """910B2, one head, d = 128 (hw-native-sys/pto-isa); 41 us of the vendor's are the host's."""
    device = dataclasses.replace(load_device("ascend910b2"), attention_kernel=kernel)
    host = 41.0 if kernel == "vendor" else 0.0
    assert host + time_us(device, square(length)) == pytest.approx(measured, rel=0.22)


def test_a_kernel_that_does_not_split_decodes_at_the_pace_of_one_core() -> None:
    """H100, 2 sequences of 3072 keys, 8 heads: 85 us without splits (casys-kaist/LLMServingSim)."""
    device = load_device("h100")
    a = Attention(2, 8, 2, 1, 3072, 128, 128, DType.F16, right=0, offset=3071)
    assert time_us(device, a) < 20
    assert time_us(device, a._replace(packs=False)) == pytest.approx(85, rel=0.2)


@pytest.mark.parametrize("device", SERVERS, ids=lambda d: d.name)
def test_softmax_keeps_it_well_below_the_cube_peak(device: Device) -> None:
    length = 16384
    flop = 4.0 * length**2 * 128
    peak = device.cube_flop_per_us(DType.F16) * device.cube_cores
    assert 0.15 <= flop / time_us(device, square(length)) / peak <= 0.6


def test_the_article_s_block_sizes() -> None:
    """On the first generation 64 fits, 128 fits and is faster, 256 overflows the buffers."""
    a = square(32768, heads=64)._replace(kv_heads=8)
    assert fits(A1, a, Blocks(64, 64))
    assert fits(A1, a, Blocks(128, 128))
    assert not fits(A1, a, Blocks(256, 256))
    assert not fits(A2, a, Blocks(256, 256))
    need, there = blocks_need(A1, a, Blocks(256, 256))["ub"]
    assert need > there
    small, large = time_us(A1, a, Blocks(64, 64)), time_us(A1, a, Blocks(128, 128))
    assert large < 0.95 * small


@pytest.mark.parametrize("device", SERVERS, ids=lambda d: d.name)
def test_causal_skips_half_and_a_window_most(device: Device) -> None:
    full = time_us(device, square(16384, 8))
    assert time_us(device, square(16384, 8, right=0)) == pytest.approx(full / 2, rel=0.1)
    window = time_us(device, square(16384, 8, right=0, left=1023))
    assert window < 0.12 * full


def test_sharing_of_kv_heads_saves_traffic_not_work() -> None:
    many = attention_demand(A2, square(4096, 32), Blocks(128, 128))
    shared = attention_demand(A2, square(4096, 32, kv_heads=8), Blocks(128, 128))
    assert shared.cube_us == many.cube_us
    kv = 2 * 4096 * 128 * 2
    assert many.load_bytes - shared.load_bytes == (32 - 8) * kv


@pytest.mark.parametrize("device", ASCEND, ids=lambda d: d.name)
def test_decoding_is_bound_by_reading_the_cache(device: Device) -> None:
    a = Attention(16, 32, 8, 1, 8192, 128, 128, DType.F16)
    found = attention_demand(device, a)
    cache_us = 16 * 8 * 8192 * 256 * 2 / device.hbm_bytes_per_us
    assert cache_us <= device.alone_us(found) <= 1.25 * cache_us


def test_decoding_with_a_window_reads_only_the_window() -> None:
    a = Attention(1, 8, 8, 1, 8192, 128, 128, DType.F16, right=0, offset=8191)
    window = attention_demand(A2, a._replace(left=1023))
    assert window.load_bytes < 0.2 * attention_demand(A2, a).load_bytes


lengths = st.integers(1, 3000)


@settings(max_examples=60, deadline=None)
@given(
    lengths,
    lengths,
    st.sampled_from([(1, 1), (8, 8), (8, 2), (6, 1)]),
    st.sampled_from([16, 64, 80, 128]),
    st.sampled_from([(-1, -1), (-1, 0), (127, 0), (64, 64)]),
    st.booleans(),
    st.sampled_from(DEVICES),
)
def test_what_must_hold_for_any(
    q_len: int,
    kv_len: int,
    heads: tuple[int, int],
    depth: int,
    window: tuple[int, int],
    bottom: bool,
    device: Device,
) -> None:
    a = Attention(
        2,
        *heads,
        q_len,
        kv_len,
        depth,
        depth,
        DType.F16,
        left=window[0],
        right=window[1],
        offset=kv_len - q_len if bottom else 0,
    )
    found = attention_demand(device, a)
    full = attention_demand(device, a._replace(left=-1, right=-1, offset=0))
    pairs = allowed_pairs(a)
    least = 4.0 * 2 * heads[0] * pairs * depth / device.cube_flop_per_us(DType.F16)
    assert found.cube_us >= least * (1 - 1e-9)
    assert found.load_bytes <= full.load_bytes * (1 + 1e-9)
    assert found.store_bytes == full.store_bytes == 2 * heads[0] * q_len * depth * 2
    assert 1 <= found.cube_cores <= device.cube_cores
    assert 1 <= found.vector_cores <= device.vector_cores
    assert device.alone_us(found) > 0


def allowed_pairs(a: Attention) -> int:
    total = 0
    for i in range(a.q_len):
        low = 0 if a.left < 0 else max(0, i + a.offset - a.left)
        high = a.kv_len if a.right < 0 else min(a.kv_len, i + a.offset + a.right + 1)
        total += max(0, high - low)
    return total


def test_nothing_to_attend_to_is_no_error() -> None:
    assert attention_demand(A2, square(0)).cube_us == 0
    a = Attention(1, 4, 4, 16, 0, 64, 64, DType.F16)
    assert attention_demand(A2, a).cube_us == 0


@pytest.mark.parametrize("device", SERVERS, ids=lambda d: d.name)
def test_blocks_that_overflow_fall_back_to_pieces_and_are_slower(device: Device) -> None:
    """32K tokens, 64 heads, 8 of keys: 64 to 128 is faster, 256 overflows and is slower again."""
    a = square(32768, heads=64)._replace(kv_heads=8, right=0)
    times = [time_us(device, a, Blocks(b, b)) for b in (64, 128, 256)]
    assert times[1] < times[0]
    assert times[2] > times[1]
    pieces = fallback_blocks(device, a, Blocks(256, 256))
    assert fits(device, a, pieces)
    assert not fits(device, a, Blocks(256, 256))
    assert fallback_blocks(device, a, Blocks(128, 128)) == Blocks(128, 128)


def test_one_k_or_v_for_the_whole_batch_is_read_once() -> None:
    a = Attention(4, 8, 8, 1, 4096, 128, 64, DType.F16)
    each = attention_demand(A2, a).load_bytes
    k = 3 * 8 * 4096 * 128 * 2
    v = 3 * 8 * 4096 * 64 * 2
    assert each - attention_demand(A2, a._replace(k_batch=1)).load_bytes == k
    assert each - attention_demand(A2, a._replace(v_batch=1)).load_bytes == v
    assert each - attention_demand(A2, a._replace(v_in_k=True)).load_bytes == v * 4 / 3


A100 = load_device("a100")


@pytest.mark.parametrize(
    ("batch", "heads", "keys", "stacks", "measured"),
    [
        (128, (32, 8), 2, True, 69.3),
        (32, (32, 8), 2, True, 25.1),
        (64, (64, 64), 2, True, 70.7),
        (128, (8, 8), 4096, True, 1242.3),
        (4, (64, 1), 4096, False, 181.9),
    ],
)
def test_decoding_comes_in_waves_of_heads(
    batch: int, heads: tuple[int, int], keys: int, stacks: bool, measured: float
) -> None:
    """A100, TensorRT-LLM (ai-dynamo/aiconfigurator), whose values lie in the keys' memory."""
    a = Attention(batch, *heads, 1, keys, 128, 128, DType.F16, stacks=stacks, v_in_k=True)
    assert time_us(A100, a) == pytest.approx(measured, rel=0.2)
