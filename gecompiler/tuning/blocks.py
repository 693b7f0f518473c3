"""Block sizes of fused attention: every pair that makes sense, by the time of all attentions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gecompiler.attention_blocks import attention_of
from gecompiler.backends.cost.attention import Attention, Blocks, attention_demand, fits
from gecompiler.backends.device import Device
from gecompiler.ir.graph import Graph

SIDES = (32, 64, 128, 256, 512)
DEFAULT = Blocks(64, 64)
"""What kernels take unless told otherwise, and what gains are counted from."""


@dataclass(frozen=True)
class BlockRow:
    """One pair: the time of all attentions with it, and whether its buffers hold it."""

    blocks: Blocks
    us: float
    fits: bool


def search_blocks(device: Device, graph: Graph) -> tuple[BlockRow, ...]:
    """The pairs, fastest first; of equals the smallest. Empty where a graph has no attention.

    Pairs longer than any attention's sizes are left out, but for the default.
    """
    problems = _counted(a for a in (attention_of(graph, op) for op in graph.ops) if a is not None)
    if not problems:
        return ()
    most_q = max(a.q_len for a, _ in problems)
    most_k = max(a.kv_len for a, _ in problems)
    pairs = [Blocks(q, k) for q in SIDES for k in SIDES if q < 2 * most_q and k < 2 * most_k]
    rows = [_row(device, problems, b) for b in dict.fromkeys([DEFAULT, *pairs])]
    return tuple(sorted(rows, key=lambda row: (row.us, row.blocks)))


def _counted(problems: Iterable[Attention]) -> list[tuple[Attention, int]]:
    found: dict[Attention, int] = {}
    for a in problems:
        found[a] = found.get(a, 0) + 1
    return list(found.items())


def _row(device: Device, problems: Sequence[tuple[Attention, int]], blocks: Blocks) -> BlockRow:
    us = math.fsum(n * device.alone_us(attention_demand(device, a, blocks)) for a, n in problems)
    return BlockRow(blocks, us, all(fits(device, a, blocks) for a, _ in problems))
