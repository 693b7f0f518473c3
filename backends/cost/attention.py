"""Fused attention: Q blocks outside, K and V blocks inside, softmax between the two products."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost.base import L2_SHARE, padded
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

SOFTMAX_PASSES = 8.0
"""Full-rate f32 passes per score: scale 1, block maximum 1.3, subtract it 1.3, exp 2, block sum
1.3, cast 1 (instruction rates as in cost_vector)."""

RESCALE_PASSES = 2.6
"""Per element of the output block and key block: times the correction, plus the new part."""

DECODE_QUERIES = 16
"""From this many on, kernels take one query head at a time."""

_Q_BLOCKS = (256, 128, 64, 32, 16)
_K_BLOCKS = (512, 256, 128, 64, 32, 16)


class Attention(NamedTuple):
    """One attention: sizes, which keys a query sees, and what is done to a score.

    Query i sees keys j with ``-left <= j - (i + offset) <= right``, -1 meaning no bound.
    """

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int
    dtype: DType
    left: int = -1
    right: int = -1
    offset: int = 0
    mask_bytes: float = 0.0
    mask_element: float = 0.0
    """Bytes of one element of the mask, which every head reads anew from L2."""
    score_passes: float = SOFTMAX_PASSES
    extra_bytes: float = 0.0
    """Other reads: sinks, lengths."""
    kv_batch: int = 0
    """Batch of K and V, where it is not ``batch`` (0)."""
    packs: bool = True
    """Whether few queries are stacked over the heads that share keys, and keys split; a kernel
    that does not fills its blocks of rows with nothing."""


class Blocks(NamedTuple):
    """Queries and keys taken at a time."""

    queries: int
    keys: int


class _Row(NamedTuple):
    """Row blocks that are alike: their number per head, rows, key span, and key blocks."""

    number: int
    rows: int
    keys: int
    steps: int


def blocks_need(device: Device, a: Attention, blocks: Blocks) -> dict[str, tuple[float, float]]:
    """Bytes needed and there are, by buffer, for one step of that block size.

    L1 holds Q, and K, V and the probabilities twice (double buffering); L0C one block of scores
    or output in f32; the unified buffer of each vector core its rows of scores (f32) and of
    probabilities, both twice, and of the running output (f32).
    """
    element = a.dtype.bits / 8
    q, k = blocks
    rows = math.ceil(q / device.vectors_per_core) if device.cube_vector_split else q
    return {
        "l1": (
            element * (q * a.head_dim + 2 * k * (a.head_dim + a.v_dim) + 2 * q * k),
            device.l1_kib * 1024,
        ),
        "l0c": (4.0 * padded(q, 16) * padded(max(k, a.v_dim), 16), device.l0c_kib * 1024),
        "ub": (rows * (2 * k * (4 + element) + 4.0 * a.v_dim), device.ub_kib * 1024),
    }


def fits(device: Device, a: Attention, blocks: Blocks) -> bool:
    """Whether that block size stays within every buffer."""
    return all(need <= there for need, there in blocks_need(device, a, blocks).values())


@lru_cache(maxsize=4096)
def attention_demand(device: Device, a: Attention, blocks: Blocks | None = None) -> Demand:
    """The demand of one fused attention, by default with the block size that is fastest here.

    Work. A row block sees only the keys its window lets through, whole key blocks of them, so
    causal and sliding windows skip the rest. The cube multiplies rows * keys * (d + dv), padded
    to 16; the vector cores take SOFTMAX_PASSES per score, and RESCALE_PASSES per output element
    and key block. With fewer than DECODE_QUERIES queries the query heads of a KV head are
    stacked into one row block, and keys are split over the idle cores.

    Traffic. Q, O and, if those at work fit L2, K and V cross HBM once, whatever the number of
    query heads per KV head. From L2 every row block draws its keys and values; with cube and
    vector cores apart, scores go out as f32 and probabilities come back, each through L2, and so
    does every step's part of the output.

    Time. Row blocks are dealt to the cores in waves as in `cost_gemm`; the pipes keep
    ``attention_efficiency`` of their pace (a figure of the kernel). Fixed time are: one step's
    way through the three stages before they overlap, the start and end of each wave of row
    blocks, the cores' idling in the last one, and the handing over between products and
    softmax at every step: ``block_sync_us`` for ``attention_rows`` rows, less for fewer.
    """
    if not all((a.batch, a.q_heads, a.q_len, a.v_dim)):
        return Demand()
    if blocks is not None:
        return _blocked(device, a, blocks)[1]
    wanted = max(16, padded(_stacked_rows(a) if _stacks(a) else a.q_len, 16))
    if not a.packs:
        wanted = max(wanted, device.attention_rows)
    allowed = [
        Blocks(q, k)
        for q in _Q_BLOCKS
        if q <= wanted or q == 16
        for k in _K_BLOCKS
        if fits(device, a, Blocks(q, k))
    ]
    usual = [b for b in allowed if b.queries >= min(wanted, device.attention_rows)]
    tried = usual or allowed or [Blocks(16, 16)]
    return min((_blocked(device, a, blocks) for blocks in tried), key=lambda c: c[0])[1]


def _stacks(a: Attention) -> bool:
    """Whether the query heads that share keys make one row block, and keys are split."""
    return a.packs and a.q_len < DECODE_QUERIES


def _stacked_rows(a: Attention) -> int:
    return a.q_len * (a.q_heads // a.kv_heads)


def _blocked(device: Device, a: Attention, blocks: Blocks) -> tuple[float, Demand]:
    stacked = _stacks(a)
    heads = a.batch * (a.kv_heads if stacked else a.q_heads)
    rows = _rows(a, blocks, stacked)
    units = heads * sum(r.number for r in rows)
    longest = max(r.steps for r in rows)
    splits = min(longest, max(1, device.cube_cores // units)) if stacked else 1
    tasks = units * splits
    waves = -(-tasks // device.cube_cores)
    cores = -(-tasks // waves)
    vectors = min(device.vector_cores, max(1, round(cores * device.vectors_per_core)))
    cube_us = heads * _cube_us(device, a, rows) / device.attention_efficiency
    vector_us = heads * _vector_us(device, a, rows) / device.attention_efficiency
    steps = heads * sum(r.number * r.steps for r in rows)
    busy_us = max(cube_us / cores, vector_us / vectors)
    mean_us = busy_us * cores / tasks
    longest_us = busy_us * cores * longest / splits / max(1, steps)
    idle_us = max(waves * mean_us, longest_us) - busy_us
    block_us = device.decode_block_us if stacked else device.attention_block_us
    fill_us = 2.0 * busy_us * cores / max(1, steps) + waves * block_us
    start_us = device.decode_start_us if stacked else device.attention_start_us
    start_us += (cores + vectors) * device.core_dispatch_us
    start_us += device.split_sync_us if splits > 1 else 0.0
    handing_us = device.attention_sync_us * min(
        1.0, max(r.rows for r in rows) / device.attention_rows
    )
    element = a.dtype.bits / 8
    q_bytes = element * a.batch * a.q_heads * a.q_len * a.head_dim
    out_bytes = element * a.batch * a.q_heads * a.q_len * a.v_dim
    demand = Demand(
        load_bytes=q_bytes + _kv_from_hbm(device, a, cores, heads) + a.mask_bytes + a.extra_bytes,
        store_bytes=out_bytes,
        l2_bytes=q_bytes + out_bytes + heads * _l2_bytes(device, a, rows, splits),
        cube_us=cube_us,
        vector_us=vector_us,
        cube_cores=cores,
        vector_cores=vectors,
        fixed_us=start_us + max(0.0, idle_us) + fill_us + steps / cores * handing_us,
        tiles=max(1, steps // cores),
    )
    return device.alone_us(demand), demand


def _rows(a: Attention, blocks: Blocks, stacked: bool) -> list[_Row]:
    """The row blocks of one head, alike ones together. O(q_len / block)."""
    if stacked:
        rows = _stacked_rows(a)
        keys, steps = _span(a, 0, a.q_len, blocks.keys)
        return [_Row(-(-rows // blocks.queries), min(rows, blocks.queries), keys, steps)]
    found: dict[tuple[int, int, int], int] = {}
    for first in range(0, a.q_len, blocks.queries):
        last = min(a.q_len, first + blocks.queries)
        keys, steps = _span(a, first, last, blocks.keys)
        kind = (last - first if a.packs else blocks.queries, keys, steps)
        found[kind] = found.get(kind, 0) + 1
    return [_Row(count, *kind) for kind, count in found.items()]


def _span(a: Attention, first: int, last: int, block: int) -> tuple[int, int]:
    """Keys (in whole blocks) and key blocks that queries first..last-1 see between them."""
    low = 0 if a.left < 0 else min(a.kv_len, max(0, first + a.offset - a.left))
    high = a.kv_len if a.right < 0 else max(0, min(a.kv_len, last + a.offset + a.right))
    if high <= low:
        return 0, 0
    begin, end = low // block, -(-high // block)
    return min(a.kv_len, end * block) - begin * block, end - begin


def _cube_us(device: Device, a: Attention, rows: list[_Row]) -> float:
    depth = padded(a.head_dim, 16) + padded(a.v_dim, 16)
    products = sum(r.number * padded(r.rows, 16) * padded(r.keys, 16) for r in rows)
    return 2.0 * products * depth / device.cube_flop_per_us(a.dtype)


def _vector_us(device: Device, a: Attention, rows: list[_Row]) -> float:
    passes = sum(
        r.number * r.rows * (r.keys * a.score_passes + r.steps * a.v_dim * RESCALE_PASSES)
        for r in rows
    )
    return passes / device.vector_lanes_per_us(32)


def _l2_bytes(device: Device, a: Attention, rows: list[_Row], splits: int) -> float:
    """Per head: keys, values and masks of every row block, and what cube and vector hand over."""
    element = a.dtype.bits / 8
    kv = sum(r.number * r.keys for r in rows) * (a.head_dim + a.v_dim) * element
    scores = sum(r.number * r.rows * r.keys for r in rows)
    mask = a.mask_element * scores
    parts = sum(r.number * r.rows for r in rows) * a.v_dim * 8.0 * splits if splits > 1 else 0.0
    if not device.cube_vector_split:
        return kv + mask + parts
    handed = scores * (8.0 + 2 * element)
    outputs = sum(r.number * r.rows * r.steps for r in rows) * a.v_dim * 8.0
    return kv + mask + parts + handed + outputs


def _kv_from_hbm(device: Device, a: Attention, cores: int, heads: int) -> float:
    """The K and V that any query sees, once; once a wave where the heads at work overflow L2."""
    element = a.dtype.bits / 8
    batch = a.kv_batch or a.batch
    per_head = element * _span(a, 0, a.q_len, 16)[0] * (a.head_dim + a.v_dim)
    once = per_head * batch * a.kv_heads
    at_work = min(batch * a.kv_heads, max(1, math.ceil(cores * a.kv_heads * a.batch / heads)))
    if at_work * per_head <= device.l2_mib * 2**20 * L2_SHARE:
        return once
    row_blocks = math.ceil(a.q_len * (a.q_heads // a.kv_heads) / 128)
    return once * max(1, math.ceil(row_blocks / cores))
