"""A device whose fused attentions take the block sizes that the user gives.

Without, each attention takes the blocks that are fastest on the device. Blocks that overflow a
buffer are computed in smaller pieces and are slower: a warning says so, with what fits.
"""

from __future__ import annotations

from typing import Any

from gecompiler.backends.cost.attention import (
    Attention,
    Blocks,
    attention_demand,
    blocks_need,
    fallback_blocks,
    fits,
)
from gecompiler.backends.cost.attention_ops import flash_problem
from gecompiler.backends.cost.base import sizes
from gecompiler.backends.device import Device
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.schedule import Demand
from gecompiler.units import size

__all__ = ["BlockedTarget", "Blocks", "attention_of", "blocked_target"]


class BlockedTarget:
    """A `Target` that answers as the device does, but for the block sizes of attention."""

    def __init__(self, device: Device, blocks: Blocks) -> None:
        self._device = device
        self._blocks = blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def demand(self, graph: Graph, op: Op) -> Demand:
        """The device's demand; of fused attention in these blocks."""
        problem = attention_of(graph, op)
        if problem is None:
            return self._device.demand(graph, op)
        return attention_demand(self._device, problem, self._blocks)


def attention_of(graph: Graph, op: Op) -> Attention | None:
    """The attention that an op computes; None for any other op."""
    if op.op_type != "FlashAttention" or op.domain != GE_DOMAIN:
        return None
    return flash_problem(op, sizes(graph, op))


def blocked_target(
    device: Device, graph: Graph, blocks: Blocks, diagnostics: Diagnostics
) -> BlockedTarget:
    """The target for a bound graph; warns where an attention's blocks overflow a buffer."""
    problems = [attention_of(graph, op) for op in graph.ops]
    tight = [a for a in problems if a is not None and not fits(device, a, blocks)]
    if tight:
        pieces = fallback_blocks(device, tight[0], blocks)
        need = blocks_need(device, tight[0], blocks)
        name = max(need, key=lambda n: need[n][0] / need[n][1])
        diagnostics.warn(
            "attention-blocks-overflow",
            f"blocks of {blocks.queries} queries by {blocks.keys} keys need "
            f"{size(need[name][0])} of {name.upper()}, {device.name} has {size(need[name][1])}: "
            f"{len(tight)} attention(s) run in pieces of {pieces.queries} by {pieces.keys} and "
            "are slower",
            f"set attention_block_q and attention_block_k to {pieces.queries} and {pieces.keys}, "
            "or leave them to the compiler",
        )
    return BlockedTarget(device, blocks)
