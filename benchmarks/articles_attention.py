"""The second article: attention of a 70B model at 32K tokens, tuned step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.articles_table import Section, percent, ratio
from benchmarks.fidelity_rows import Collective
from gecompiler.backends.cost.attention import (
    Attention,
    attention_demand,
    blocks_need,
    fallback_blocks,
)
from gecompiler.backends.cost.attention_tiles import Blocks, hbm_traffic, least_traffic
from gecompiler.backends.device import Device, load_device
from gecompiler.ir.types import DType
from gecompiler.models import spec
from gecompiler.ops.paged_attention import PagedAttentionConfig, PagedKVCache
from gecompiler.ops.parallel import parallel_counters

DEVICE, MODEL = "ascend910", "llama-70b"
TOKENS, HEADS, KV_HEADS, HEAD_DIM, WINDOW, CARDS = 32768, 64, 8, 128, 4096, 8
PAGE, PAGES = 16, 2048
FULL = Attention(1, HEADS, KV_HEADS, TOKENS, TOKENS, HEAD_DIM, HEAD_DIM, DType.F16)
PUBLISHED_BLOCKS = {64: (15.2, 0.42), 128: (10.8, 0.58), 256: (None, None)}
"""Block size: milliseconds of a kernel, utilisation."""


def attention_sections() -> list[Section]:
    """Blocks, shared keys, window, pages, cards, and the sum of it."""
    device = load_device(DEVICE)
    return [
        blocks(device),
        shared_keys(device),
        window(device),
        paging(),
        cards(device),
        total(device),
    ]


@dataclass(frozen=True)
class Timed:
    """One attention on one card."""

    ms: float
    cube: float
    """Share of the time in which the cube computes."""


def timed(device: Device, a: Attention, size: Blocks | None = None) -> Timed:
    """The cost model's time, by the block size given or the best one."""
    demand = attention_demand(device, a, size)
    us = device.alone_us(demand)
    return Timed(us / 1000, demand.cube_us / device.cube_cores / us)


def blocks(device: Device) -> Section:
    """64, 128 and 256 rows and keys at a time: time, utilisation, SRAM, traffic."""
    rows = []
    base = timed(device, FULL, Blocks(64, 64))
    for side, (published_ms, published_use) in PUBLISHED_BLOCKS.items():
        size = Blocks(side, side)
        found = timed(device, FULL, size)
        need = blocks_need(device, FULL, size)
        fullest = max(need, key=lambda name: need[name][0] / need[name][1])
        pieces = fallback_blocks(device, FULL, size)
        traffic = hbm_traffic(FULL.problem, size)
        rows.append(
            (side, published_ms, published_use and percent(published_use),
             published_ms and ratio(15.2, published_ms), round(found.ms, 1), percent(found.cube),
             ratio(base.ms, found.ms), f"{fullest} {percent(need[fullest][0] / need[fullest][1])}",
             "fits" if pieces == size else f"overflows: runs as {pieces.queries}x{pieces.keys}",
             round(traffic.total / 1e9, 2))
        )  # fmt: skip
    least = 2.0 * HEADS * TOKENS**2 * 2 * HEAD_DIM
    least /= device.cube_flop_per_us(DType.F16) * device.cube_cores * 1000
    return Section(
        f"Block sizes, {HEADS} heads over {KV_HEADS}, {TOKENS} tokens, on {DEVICE}",
        ("block", "published ms", "published use", "published gain", "ms", "cube use", "gain",
         "fullest buffer", "buffers", "GB without cache"),
        tuple(rows),
        (
            f"The products of one such attention take {least:.0f} ms at the device's peak, so the "
            "published 15.2 and 10.8 ms cannot be of a whole one; compared are gains.",
            "Both say the same of the shape: 64 to 128 helps, 256 overflows, is warned of and is "
            "slower than 128.",
        ),
    )  # fmt: skip


def shared_keys(device: Device) -> Section:
    """Keys and values as they are, or repeated for every query head beforehand."""
    apart = FULL._replace(kv_heads=HEADS)
    element = FULL.dtype.bits // 8
    tokens = TOKENS * HEAD_DIM * element / 2**30
    layers = spec(MODEL).layers
    rows = []
    for what, a in (("repeated for 64 heads", apart), ("8 heads shared", FULL)):
        least = least_traffic(a.problem, float(element))
        kv = 2 * a.kv_heads * tokens
        rows.append(
            (what, round(kv, 2), round(kv + 2 * HEADS * tokens, 2), round(kv * layers, 1),
             round(least.total / 1e9, 2), round(timed(device, a).ms, 1))
        )  # fmt: skip
    saved = 1 - rows[1][2] / rows[0][2]
    return Section(
        "Grouped queries",
        ("keys and values", "K and V, GiB", "with Q and O, GiB", f"cache of {layers} layers, GiB",
         "least HBM GB", "ms"),
        tuple(rows),
        (f"Published: 35% less memory. Of one attention's tensors it is {saved:.0%} less; the "
         "rest of the model, which the article counts too, does not shrink.",),
    )  # fmt: skip


def window(device: Device) -> Section:
    """A window of 4096 tokens: what the article says, and what its mask keeps."""
    full = hbm_traffic(FULL.problem, Blocks(128, 128))
    whole = timed(device, FULL)
    rows: list[tuple[object, ...]] = [("all keys", "-", "0.0%", round(whole.ms, 1), 1.0)]
    for what, left, right, said in (
        ("4096 keys before and after, as its mask has it", WINDOW, WINDOW, "87.5%"),
        ("4096 keys in all, as its text counts", WINDOW // 2, WINDOW // 2 - 1, "87.5%"),
        ("4096 keys before, causal", WINDOW - 1, 0, "-"),
    ):
        a = FULL._replace(left=left, right=right)
        found, traffic = timed(device, a), hbm_traffic(a.problem, Blocks(128, 128))
        saved = 1 - traffic.steps / full.steps
        rows.append((what, said, percent(saved), round(found.ms, 1), ratio(whole.ms, found.ms)))
    return Section(
        "Sliding window",
        ("window", "published saving", "blocks skipped", "ms", "times as fast"),
        tuple(rows),
        ("The text counts 4096 of 32768 keys, 87.5% less; the mask in its code keeps 4096 on "
         "either side, which is 8193 keys and about 76% less.",),
    )  # fmt: skip


def paging() -> Section:
    """Memory of a cache in pages of 16 tokens beside one reserved for the longest sequence."""
    config = PagedAttentionConfig(HEADS, HEAD_DIM, PAGE, PAGES, kv_heads=1)
    rows = []
    for length in (1000, 8000, 25_559, 32_000, TOKENS):
        cache = PagedKVCache(config)
        keys = np.zeros((1, length, 1, HEAD_DIM), np.float16)
        cache.append(keys, keys)
        table = cache.page_table(cache.sequences[0])
        rows.append(
            (length, percent(length / TOKENS), len(table), percent(cache.usage().utilisation),
             round(table.nbytes / 1024, 2))
        )  # fmt: skip
    return Section(
        "Paged cache",
        ("tokens", "use, reserved for 32768", "pages of 16", "use, paged", "page table, KiB"),
        tuple(rows),
        (
            f"{PAGES} pages of {PAGE} tokens are {PAGES * PAGE} tokens: one such sequence.",
            "Published: use rises from 78% to 92%. A reservation is used to 78% by sequences of "
            "25.6K tokens; pages of 16 then lose less than 0.1%, so the missing 8% must be other "
            "memory than the cache.",
        ),
    )


def cards(device: Device) -> Section:
    """One layer's attention over 8 cards: heads apart, or queries apart."""
    size = 2.0 * TOKENS * HEADS * HEAD_DIM  # of queries, and of the result
    keys = 2.0 * TOKENS * KV_HEADS * HEAD_DIM
    by_heads = FULL._replace(q_heads=HEADS // CARDS, kv_heads=KV_HEADS // CARDS)
    by_tokens = FULL._replace(q_len=TOKENS // CARDS, offset=0)
    gather = ("AllGather", size)
    passed = [("Send", 2 * keys / CARDS)] * (CARDS - 1)
    exchanged = [("AllToAll", part / CARDS) for part in (size, keys, keys, size)]
    plans: tuple[tuple[str, str, Attention, list[tuple[str, float]]], ...] = (
        ("one card", "", FULL, []),
        ("tensor parallel: heads apart, all-reduce", "heads", by_heads, [("AllReduce", size)]),
        ("sequence parallel: queries apart, all-gather", "replicated_kv", by_tokens, [gather]),
        ("keys apart too: passed round a ring", "ring", by_tokens, [*passed, gather]),
        ("keys apart too: exchanged for heads", "ulysses", by_heads, [*exchanged, gather]),
    )
    rows = []
    for what, algorithm, a, moves in plans:
        ms = timed(device, a).ms
        moving = sum(_collective_ms(device, kind, moved) for kind, moved in moves)
        rows.append(
            (what, round(ms, 2), round(_sent(algorithm) / 1e6), round(moving, 2),
             round(ms + moving, 2))
        )  # fmt: skip
    saved = 1 - rows[2][2] / rows[1][2]
    return Section(
        f"{CARDS} cards, one layer's attention",
        ("plan", "attention ms", "MB sent a card", "moving ms", "ms in all"),
        tuple(rows),
        (
            f"Published: about 60% less traffic, 1.8 times the throughput. An all-gather sends "
            f"{saved:.0%} less than an all-reduce of the same result; in all the layer is "
            f"{rows[1][4] / rows[2][4]:.2f} times as fast.",
            "In the first two plans of 8 cards keys and values are on every card, as the article "
            "has it. Bytes are counted by gecompiler.ops.parallel_counters; what a ring passes on "
            "is added up here, though most of it would hide behind the arithmetic.",
        ),
    )  # fmt: skip


def _sent(algorithm: str) -> int:
    """Bytes that a card sends, the result gathered on all."""
    if not algorithm:
        return 0
    queries, keys = (1, TOKENS, HEADS, HEAD_DIM), (1, TOKENS, KV_HEADS, HEAD_DIM)
    done = parallel_counters(
        algorithm, queries, keys, head_num=HEADS, ranks=CARDS, input_layout="BSND"
    )
    return done.sent_bytes


def _collective_ms(device: Device, kind: str, size: float) -> float:
    cards = tuple(range(2 if kind == "Send" else CARDS))
    return device.alone_us(Collective(kind, size, cards).demand(device)) / 1000


def total(device: Device) -> Section:
    """The sum that the article publishes, beside the least that arithmetic and weights need."""
    s = spec(MODEL)
    layer = s.hidden * (2 * s.hidden + 2 * s.kv_heads * (s.hidden // s.heads))
    layer += 3 * s.hidden * s.intermediate
    weights = s.layers * layer + 2 * s.hidden * s.vocabulary
    peak = device.cube_flop_per_us(DType.F16) * device.cube_cores * 1e3  # flop per ms
    products = 2.0 * (weights - s.hidden * s.vocabulary) * TOKENS / peak
    attention = s.layers * 4.0 * HEADS * TOKENS**2 * HEAD_DIM / peak
    before, after = timed(device, FULL, Blocks(64, 64)), timed(device, FULL, Blocks(128, 128))
    with_window = timed(device, FULL._replace(left=WINDOW, right=WINDOW), Blocks(128, 128))
    return Section(
        "The sum",
        ("", "published before", "published after", "published gain", "modelled gain"),
        (
            ("latency, ms", 2400.0, 720.0, ratio(2400, 720), None),
            ("attention alone: blocks", 15.2, 10.8, ratio(15.2, 10.8), ratio(before.ms, after.ms)),
            ("attention alone: blocks and window", None, None, None,
             ratio(before.ms, with_window.ms)),
            ("use of the cube", "42%", "78%", ratio(0.78, 0.42),
             ratio(after.cube, before.cube)),
            ("memory, GB", 62.0, 41.0, ratio(62, 41), None),
        ),
        (
            f"Not reachable: weights of {weights / 1e9:.0f} G parameters are "
            f"{2 * weights / 1e9:.0f} GB in 16 bits, the device has {device.memory_gib:g} GiB, and "
            f"{TOKENS} tokens take {(products + attention) / CARDS:,.0f} ms at least on all "
            f"{CARDS} cards at their peak. So the latencies and memories are not of this model on "
            "this device, and only gains are compared.",
        ),
    )  # fmt: skip
