"""The counters of an attention call, from its sizes and its plan of tiles alone.

The same for a call that is made (`recording.record`) and for one that is only asked about, such
as by a search over block sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost.attention import attention_demand, blocks_need
from gecompiler.backends.cost.attention_ops import score_passes
from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.cost.attention_work import Attention
from gecompiler.backends.counters import (
    AttentionCounters,
    Bandwidth,
    BufferUse,
)
from gecompiler.backends.kernels.tile_plan import TilePlan, TileTotals
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

SUM_BYTES = 4
"""Of a log-sum-exp or a partial gradient: float32."""

BACKWARD_VECTOR = 2.0
"""Vector work of the backward pass over the forward one's: as many passes over the scores for
the probabilities, without running maxima, and as many again for their gradients."""


class Part(NamedTuple):
    """One attention of a call; sequences of various lengths make several."""

    plan: TilePlan
    dtype: DType
    softcap: bool = False
    sinks: bool = False
    lse: bool = False
    """Whether the log-sum-exp is written."""


def count(
    device: Device,
    parts: Sequence[Part],
    *,
    op: str = "flash_attention",
    backward: bool = False,
    more_reads: Mapping[str, float] | None = None,
) -> AttentionCounters:
    """The counters of one call. Without masks O(blocks of queries), else O(elements of masks).

    ``more_reads``: bytes that it reads from device memory besides its operands, by name.
    """
    totals = [part.plan.totals() for part in parts]
    pairs = list(zip(parts, totals, strict=True))
    moved = [(_backward_bytes if backward else _forward_bytes)(*pair) for pair in pairs]
    demand = _together(device, [_demand(device, *pair, backward=backward) for pair in pairs])
    us = device.alone_us(demand)
    flops = sum(_flops(part.plan, t.scores, backward) for part, t in pairs)
    full = sum(_flops(part.plan, _all_scores(part.plan), backward) for part in parts)
    blocks = parts[0].plan.blocks if parts else Blocks(0, 0)
    return AttentionCounters(
        op=op,
        device=device.name,
        dtype=parts[0].dtype.short if parts else "",
        block_q=blocks.queries,
        block_k=blocks.keys,
        flops=flops,
        flops_skipped=full - flops,
        reads=_added([*(reads for reads, _ in moved), dict(more_reads or {})]),
        writes=_added([writes for _, writes in moved]),
        sram=_sram(device, parts),
        tiles=sum(t.steps for t in totals),
        tiles_skipped=sum(t.skipped for t in totals),
        tiles_masked=sum(t.masked for t in totals),
        time_us=us,
        cube_utilisation=demand.cube_us / (device.cube_cores * us) if us else 0.0,
        vector_utilisation=demand.vector_us / (device.vector_cores * us) if us else 0.0,
        bandwidth=_bandwidth(device, demand),
    )


def _flops(plan: TilePlan, scores: int, backward: bool) -> int:
    """Of the products: S = QK', O = PV; backward S again, dP = dO V', dV, dQ and dK."""
    p = plan.problem
    depth = 3 * p.head_dim + 2 * p.v_dim if backward else p.head_dim + p.v_dim
    return 2 * scores * (p.q_heads // p.kv_heads) * depth


def _all_scores(plan: TilePlan) -> int:
    p = plan.problem
    return p.batch * p.kv_heads * p.q_len * p.kv_len


Bytes = dict[str, float]


def _forward_bytes(part: Part, t: TileTotals) -> tuple[Bytes, Bytes]:
    """Q outside, K inside: Q and O once, and every row block reads the keys it sees."""
    p, element = part.plan.problem, part.dtype.bits / 8
    queries = p.batch * p.q_heads * p.q_len
    reads = {
        "query": queries * p.head_dim * element,
        "key": t.keys * p.head_dim * element,
        "value": t.keys * p.v_dim * element,
        **_mask_bytes(part.plan, t),
        "sinks": p.q_heads * SUM_BYTES if part.sinks else 0,
    }
    writes = {
        "out": queries * p.v_dim * element,
        "lse": queries * SUM_BYTES if part.lse else 0,
    }
    return reads, writes


def _backward_bytes(part: Part, t: TileTotals) -> tuple[Bytes, Bytes]:
    """K outside, Q inside (algorithm 2): K, V, dK and dV once.

    Every step reads its rows of Q, dO, the log-sum-exp and delta = rowsum(dO * O), and reads and
    writes dQ in float32.
    """
    p, element = part.plan.problem, part.dtype.bits / 8
    repeats = p.q_heads // p.kv_heads
    rows, queries = t.queries * repeats, p.batch * p.q_heads * p.q_len
    keys = p.batch * p.kv_heads * p.kv_len
    reads = {
        "query": rows * p.head_dim * element,
        "key": keys * p.head_dim * element,
        "value": keys * p.v_dim * element,
        "dout": (rows + queries) * p.v_dim * element,
        "out": queries * p.v_dim * element,
        "lse, delta": 2 * rows * SUM_BYTES,
        "dquery sums": rows * p.head_dim * SUM_BYTES,
        **_mask_bytes(part.plan, t),
        "sinks": p.q_heads * SUM_BYTES if part.sinks else 0,
    }
    writes = {
        "delta": queries * SUM_BYTES,
        "dquery sums": rows * p.head_dim * SUM_BYTES,
        "dquery": queries * p.head_dim * element,
        "dkey": keys * p.head_dim * element,
        "dvalue": keys * p.v_dim * element,
    }
    return reads, writes


def _mask_bytes(plan: TilePlan, t: TileTotals) -> Bytes:
    """Masks are looked at wherever the window lets a row block see keys."""
    found: Bytes = {}
    if plan.keep is not None:
        heads = plan.problem.q_heads // plan.problem.kv_heads if plan.keep.shape[1] > 1 else 1
        found["mask"] = t.mask_elements * heads * plan.keep.dtype.itemsize
    if plan.block_mask is not None:
        found["block mask"] = plan.block_mask.size
    return found


def _added(parts: Sequence[Bytes]) -> tuple[tuple[str, int], ...]:
    found: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0.0) + amount
    return tuple((name, int(amount)) for name, amount in found.items() if amount)


def _attention(part: Part) -> Attention:
    """As the cost model knows it."""
    p, keep = part.plan.problem, part.plan.keep
    mask = None if keep is None else DType.from_numpy(keep.dtype)
    return Attention(
        *p[:7],
        dtype=part.dtype,
        left=p.left,
        right=p.right,
        offset=p.offset,
        mask_bytes=0.0 if keep is None else float(keep.nbytes),
        mask_element=0.0 if keep is None else float(keep.dtype.itemsize),
        score_passes=score_passes(mask, softcap=part.softcap),
        extra_bytes=float(p.q_heads * SUM_BYTES) if part.sinks else 0.0,
        k_batch=p.k_batch,
        v_batch=p.v_batch,
    )


def _demand(device: Device, part: Part, t: TileTotals, *, backward: bool) -> Demand:
    """The cost model's demand, less what masks skip; backward in proportion to its work."""
    plan, p = part.plan, part.plan.problem
    demand = attention_demand(device, _attention(part), plan.blocks)
    if not demand.cube_us:
        return demand
    share = 1.0
    if plan.keep is not None or plan.block_mask is not None:
        band = replace(plan, keep=None, block_mask=None).totals().scores
        share = t.scores / band if band else 1.0
    start = min(device.attention_start_us, demand.fixed_us)
    products = (3 * p.head_dim + 2 * p.v_dim) / (p.head_dim + p.v_dim) if backward else 1.0
    load, store = demand.load_bytes, demand.store_bytes
    if backward:  # Q, K, V, O, dO, and the sums of dQ in; dQ, dK, dV and those sums out
        load, store = load + 2 * store, load
    return replace(
        demand,
        load_bytes=load,
        store_bytes=store,
        l2_bytes=demand.l2_bytes * share * products,
        cube_us=demand.cube_us * share * products,
        vector_us=demand.vector_us * share * (BACKWARD_VECTOR if backward else 1.0),
        fixed_us=start + (demand.fixed_us - start) * share,
    )


def _together(device: Device, demands: Sequence[Demand]) -> Demand:
    """Sequences of one launch: their work added up, dealt to the same cores."""
    found = [d for d in demands if d != Demand()]
    if len(found) <= 1:
        return found[0] if found else Demand()
    cubes = min(device.cube_cores, sum(d.cube_cores for d in found))
    vectors = min(device.vector_cores, sum(d.vector_cores for d in found))
    return Demand(
        load_bytes=math.fsum(d.load_bytes for d in found),
        store_bytes=math.fsum(d.store_bytes for d in found),
        l2_bytes=math.fsum(d.l2_bytes for d in found),
        cube_us=math.fsum(d.cube_us for d in found),
        vector_us=math.fsum(d.vector_us for d in found),
        cube_cores=cubes,
        vector_cores=vectors,
        fixed_us=max(d.fixed_us for d in found),
        tiles=max(1, sum(d.tiles * d.cube_cores for d in found) // max(1, cubes)),
    )


def _sram(device: Device, parts: Sequence[Part]) -> tuple[BufferUse, ...]:
    if not parts:
        return ()
    needs = [blocks_need(device, _attention(part), part.plan.blocks) for part in parts]
    return tuple(
        BufferUse(name, max(need[name][0] for need in needs), there)
        for name, (_, there) in needs[0].items()
    )


def _bandwidth(device: Device, demand: Demand) -> tuple[Bandwidth, ...]:
    """Start-up without traffic, then the simulator's phases: first load, steady, last store."""
    from gecompiler.backends.simulator.fluid import phases

    spans = [(demand.fixed_us, 0.0)]
    spans += [(phase.us, dict(phase.use).get("hbm", 0.0)) for phase in phases(device, demand)]
    spans = [(us, share) for us, share in spans if us > 0]
    ends = list(accumulate(us for us, _ in spans))
    rate = device.hbm_bytes_per_us / 1e3
    return tuple(
        Bandwidth(start, end, share * rate, share)
        for (_, share), (start, end) in zip(spans, pairwise([0.0, *ends]), strict=True)
    )
