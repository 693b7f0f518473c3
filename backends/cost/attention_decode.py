"""Attention of few queries over a long cache (decoding): stacked heads, and keys that are split."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gecompiler.backends.cost.attention_tiles import least_traffic, row_block
from gecompiler.backends.cost.attention_work import RESCALE_PASSES, Attention, products_us
from gecompiler.backends.cost.base import L2_SHARE, padded
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

STEP_KEYS = 128
"""Keys that one step of a task takes."""


def decode_demand(device: Device, a: Attention) -> Demand:
    """The demand of attention with fewer than DECODE_QUERIES queries.

    Tasks. The query heads of a KV head are stacked into one block of rows, and batch * kv_heads
    such units are dealt to the cores. Keys of a unit are split into parts of at least
    ``decode_split_keys`` while there are no more than ``decode_split_tasks`` of them a core;
    the parts' sums (f32) are then joined: ``decode_join_us``, unless tasks of a further wave run
    beside that, and their way through L2.

    Waves. t tasks run in w = ceil(t / (cores * s)) waves, and a wave takes ``decode_block_us``
    beside its data: loading the query and the first keys, and handing the output over, which
    nothing hides. s is 1; where a unit is a single row, which needs no product of matrices,
    blocks of threads shrink until ``decode_tasks_per_core`` of them share a core, as many as
    there are tasks for.

    Traffic. Q, O, and K and V once, only the keys that a query sees. Where V lies in K's memory
    it is found in L2; by a kernel of single rows, that passes over all K and then over all V,
    only if what is at work fits there.
    """
    stacked = a.q_heads // a.kv_heads if a.stacks else 1
    rows = a.q_len * stacked
    seen = row_block(a.problem, 0, a.q_len, 16)
    keys = seen.end - seen.begin
    units = a.batch * a.q_heads // stacked
    single = rows == 1
    splits = _splits(device, units, keys, single)
    tasks = units * splits
    most = device.decode_tasks_per_core if single else 1
    shared = min(most, max(1, 2 ** int(math.log2(max(1, tasks // device.cube_cores)))))
    waves = -(-tasks // (device.cube_cores * shared))
    cores = min(device.cube_cores, -(-tasks // waves))
    vectors = min(device.vector_cores, max(1, round(cores * device.vectors_per_core)))
    part = -(-keys // splits)
    steps = max(1, -(-part // STEP_KEYS))
    scores = units * padded(rows, 16) * splits * padded(part, 16)
    passes = units * rows * (keys * a.score_passes + splits * steps * a.v_dim * RESCALE_PASSES)
    efficiency = device.attention_efficiency
    element = a.dtype.bits / 8
    least = least_traffic(a.problem, element)
    at_work = cores * shared * part * a.head_dim * element
    found = a.v_in_k and (not single or at_work <= L2_SHARE * device.l2_mib * 2**20)
    parts_bytes = 8.0 * units * rows * splits * a.v_dim if splits > 1 else 0.0
    kv = units * keys * (a.head_dim + a.v_dim) * element
    mask = a.mask_element * units * rows * keys
    handed = units * rows * keys * (8.0 + 2 * element) if device.cube_vector_split else 0.0
    fixed_us = device.decode_start_us + (cores + vectors) * device.core_dispatch_us
    fixed_us += waves * device.decode_block_us
    if splits > 1 and waves == 1:
        fixed_us += device.decode_join_us
    return Demand(
        load_bytes=least.q + least.k + (0.0 if found else least.v) + a.mask_bytes + a.extra_bytes,
        store_bytes=least.out,
        l2_bytes=least.q + least.out + kv + mask + handed + parts_bytes,
        cube_us=products_us(device, a, scores) / efficiency,
        vector_us=passes / device.vector_lanes_per_us(32) / efficiency,
        cube_cores=cores,
        vector_cores=vectors,
        fixed_us=fixed_us,
        tiles=max(1, steps),
    )


def _splits(device: Device, units: int, keys: int, single: bool) -> int:
    per_core = 1.0 if single else device.decode_split_tasks
    room = int(per_core * device.cube_cores) // units
    return max(1, min(-(-keys // device.decode_split_keys), room))
