"""Fused attention: Q blocks outside, K and V blocks inside, softmax between the two products."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost.attention_decode import decode_demand
from gecompiler.backends.cost.attention_tiles import (
    Blocks,
    least_traffic,
    row_block,
    row_blocks,
    sram_bytes,
)
from gecompiler.backends.cost.attention_work import (
    DECODE_QUERIES,
    RESCALE_PASSES,
    SOFTMAX_PASSES,
    Attention,
    products_us,
)
from gecompiler.backends.cost.base import L2_SHARE, padded
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

SPILL_PASSES = 2.0
"""Per score that does not fit the buffers: out to memory and in again."""

__all__ = [
    "SOFTMAX_PASSES",
    "Attention",
    "Blocks",
    "attention_demand",
    "blocks_need",
    "fallback_blocks",
    "fits",
]

_Q_BLOCKS = (256, 128, 64, 32, 16)
_K_BLOCKS = (512, 256, 128, 64, 32, 16)


class _Rows(NamedTuple):
    """Row blocks that are alike: their number per head, rows, key span, and key blocks."""

    number: int
    rows: int
    keys: int
    steps: int


def blocks_need(device: Device, a: Attention, blocks: Blocks) -> dict[str, tuple[float, float]]:
    """Bytes needed and there are, by buffer, for one step of that block size (`sram_bytes`)."""
    vectors = math.ceil(device.vectors_per_core) if device.cube_vector_split else 1
    need = sram_bytes(*blocks, a.head_dim, a.v_dim, a.dtype.bits / 8, vectors_per_core=vectors)
    return {
        "l1": (need.l1, device.l1_kib * 1024),
        "l0c": (need.l0c, device.l0c_kib * 1024),
        "ub": (need.ub, device.ub_kib * 1024),
    }


def fits(device: Device, a: Attention, blocks: Blocks) -> bool:
    """Whether that block size stays within every buffer."""
    return all(need <= there for need, there in blocks_need(device, a, blocks).values())


def fallback_blocks(device: Device, a: Attention, blocks: Blocks) -> Blocks:
    """The pieces a block that overflows is computed in: its longer side halved until they fit."""
    q, k = blocks
    while not fits(device, a, Blocks(q, k)) and max(q, k) > 16:
        q, k = (q, -(-k // 2)) if k > q else (-(-q // 2), k)
    return Blocks(q, k)


@lru_cache(maxsize=4096)
def attention_demand(device: Device, a: Attention, blocks: Blocks | None = None) -> Demand:
    """The demand of one fused attention, by default with the block size that is fastest here.

    Work. A row block sees only the keys its window lets through, whole key blocks of them, so
    causal and sliding windows skip the rest. The cube multiplies rows * keys * (d + dv), padded
    to 16; the vector cores take SOFTMAX_PASSES per score, and RESCALE_PASSES per output element
    and key block. With fewer than DECODE_QUERIES queries there are no
    blocks of queries to choose: see `attention_decode`.

    Traffic. Q, O and, if those at work fit L2, K and V cross HBM once, whatever the number of
    query heads per KV head. From L2 every row block draws its keys and values; with cube and
    vector cores apart, scores go out as f32 and probabilities come back, each through L2, and so
    does every step's part of the output.

    Time. Row blocks are dealt to the cores in waves as in `cost_gemm`; the pipes keep
    ``attention_efficiency`` of their pace (a figure of the kernel). Fixed time are: one step's
    way through the three stages before they overlap, the start and end of each wave of row
    blocks, the cores' idling in the last one, and the handing over between products and
    softmax at every step: ``block_sync_us`` for ``attention_rows`` rows, less for fewer.

    Blocks that overflow the buffers are computed in `fallback_blocks`, and the scores of the
    whole block wait in memory meanwhile: they are written, read and moved once more.
    """
    if not all((a.batch, a.q_heads, a.q_len, a.v_dim)):
        return Demand()
    if a.packs and a.q_len < DECODE_QUERIES:
        return decode_demand(device, a)
    if blocks is not None:
        pieces = fallback_blocks(device, a, blocks)
        return _blocked(device, a, pieces, spills=pieces != blocks)[1]
    wanted = max(16, padded(a.q_len, 16))
    if not a.packs:
        wanted = max(wanted, device.attention_rows)
    allowed = [
        Blocks(q, k)
        for q in _Q_BLOCKS
        if q <= wanted or q == 16
        for k in _K_BLOCKS
        if k <= device.attention_keys and fits(device, a, Blocks(q, k))
    ]
    usual = [b for b in allowed if b.queries >= min(wanted, device.attention_rows)]
    if not a.packs:
        usual = [b for b in usual if b.keys == device.attention_keys]
    tried = usual or allowed or [Blocks(16, 16)]
    return min((_blocked(device, a, blocks) for blocks in tried), key=lambda c: c[0])[1]


def _blocked(
    device: Device, a: Attention, blocks: Blocks, *, spills: bool = False
) -> tuple[float, Demand]:
    heads = a.batch * a.q_heads
    rows = _rows(a, blocks)
    tasks = heads * sum(r.number for r in rows)
    longest = max(r.steps for r in rows)
    waves = -(-tasks // device.cube_cores)
    cores = -(-tasks // waves)
    vectors = min(device.vector_cores, max(1, round(cores * device.vectors_per_core)))
    scores = sum(r.number * r.rows * r.keys for r in rows)
    cube_us = heads * _cube_us(device, a, rows) / device.attention_efficiency
    passes = _vector_passes(a, rows) + (SPILL_PASSES * scores if spills else 0.0)
    vector_us = heads * passes / device.vector_lanes_per_us(32) / device.attention_efficiency
    steps = heads * sum(r.number * r.steps for r in rows)
    busy_us = max(cube_us / cores, vector_us / vectors)
    mean_us = busy_us * cores / tasks
    longest_us = busy_us * cores * longest / max(1, steps)
    idle_us = _last_wave_us(waves, mean_us, longest_us, busy_us)
    fill_us = 2.0 * busy_us * cores / max(1, steps) + waves * device.attention_block_us
    start_us = device.attention_start_us + (cores + vectors) * device.core_dispatch_us
    handing_us = device.attention_sync_us * min(
        1.0, max(r.rows for r in rows) / device.attention_rows
    )
    element = a.dtype.bits / 8
    least = least_traffic(a.problem, element)
    spilled = heads * scores * 2.0 * (4.0 + element) if spills else 0.0
    demand = Demand(
        load_bytes=least.q + _kv_from_hbm(device, a, cores) + a.mask_bytes + a.extra_bytes,
        store_bytes=least.out,
        l2_bytes=least.q + least.out + heads * _l2_bytes(device, a, rows) + spilled,
        cube_us=cube_us,
        vector_us=vector_us,
        cube_cores=cores,
        vector_cores=vectors,
        fixed_us=start_us + max(0.0, idle_us) + fill_us + steps / cores * handing_us,
        tiles=max(1, steps // cores),
    )
    return device.alone_us(demand), demand


def _rows(a: Attention, blocks: Blocks) -> list[_Rows]:
    """The row blocks of one head, alike ones together. O(q_len / block)."""
    found: dict[tuple[int, int, int], int] = {}
    for r in row_blocks(a.problem, blocks):
        kind = (r.last - r.first, r.end - r.begin, r.steps)
        if not a.packs:
            kind = (blocks.queries, r.steps * blocks.keys, r.steps)
        found[kind] = found.get(kind, 0) + 1
    return [_Rows(count, *kind) for kind, count in found.items()]


def _cube_us(device: Device, a: Attention, rows: list[_Rows]) -> float:
    products = sum(r.number * padded(r.rows, 16) * padded(r.keys, 16) for r in rows)
    return products_us(device, a, products)


def _vector_passes(a: Attention, rows: list[_Rows]) -> float:
    """Full-rate passes of softmax and rescaling, per head."""
    return math.fsum(
        r.number * r.rows * (r.keys * a.score_passes + r.steps * a.v_dim * RESCALE_PASSES)
        for r in rows
    )


def _l2_bytes(device: Device, a: Attention, rows: list[_Rows]) -> float:
    """Per head: keys, values and masks of every row block, and what cube and vector hand over."""
    element = a.dtype.bits / 8
    kv = sum(r.number * r.keys for r in rows) * (a.head_dim + a.v_dim) * element
    scores = sum(r.number * r.rows * r.keys for r in rows)
    mask = a.mask_element * scores
    if not device.cube_vector_split:
        return kv + mask
    handed = scores * (8.0 + 2 * element)
    outputs = sum(r.number * r.rows * r.steps for r in rows) * a.v_dim * 8.0
    return kv + mask + handed + outputs


def _kv_from_hbm(device: Device, a: Attention, cores: int) -> float:
    """The K and V that any query sees, once; once a wave where the heads at work overflow L2."""
    element = a.dtype.bits / 8
    least = least_traffic(a.problem, element)
    once = least.k + (0.0 if a.v_in_k else least.v)
    seen = row_block(a.problem, 0, a.q_len, 16)
    per_head = element * (seen.end - seen.begin) * (a.head_dim + a.v_dim)
    at_work = min(a.batch * a.kv_heads, max(1, math.ceil(cores * a.kv_heads / a.q_heads)))
    if at_work * per_head <= device.l2_mib * 2**20 * L2_SHARE:
        return once
    row_blocks_of_head = math.ceil(a.q_len * (a.q_heads // a.kv_heads) / 128)
    return once * max(1, math.ceil(row_blocks_of_head / cores))


def _last_wave_us(waves: int, mean_us: float, longest_us: float, busy_us: float) -> float:
    """How long cores idle at the end.

    Alike tasks end together; where a window makes them differ, cores that are done wait for half
    of the longest on average.
    """
    if waves == 1 or longest_us <= 1.01 * mean_us:
        return max(0.0, max(waves * mean_us, longest_us) - busy_us)
    return max(longest_us / 2, longest_us - busy_us)
