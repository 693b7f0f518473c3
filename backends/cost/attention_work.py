"""What one attention is and what it computes, whatever the order of its loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gecompiler.backends.cost.attention_tiles import Problem
from gecompiler.backends.cost.base import padded
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

SOFTMAX_PASSES = 8.0
"""Full-rate f32 passes per score: scale 1, block maximum 1.3, subtract it 1.3, exp 2, block sum
1.3, cast 1 (instruction rates as in `vector`)."""

RESCALE_PASSES = 2.6
"""Per element of the output block and key block: times the correction, plus the new part."""

DECODE_QUERIES = 16
"""From this many on, kernels take one query head at a time."""


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
    k_batch: int = 0
    """Batch of K, where it is not ``batch`` (0)."""
    v_batch: int = 0
    """Batch of V, likewise."""
    packs: bool = True
    """Whether few queries are stacked over the heads that share keys, and keys split; a kernel
    that does not fills its blocks of rows with nothing."""
    stacks: bool = True
    """Whether a kernel for few queries takes the query heads that share keys together."""
    v_in_k: bool = False
    """Whether V lies within K's memory, as in multi-head latent attention: it is read once."""

    @property
    def problem(self) -> Problem:
        """Its sizes and window, for the formulas of `attention_tiles`."""
        return Problem(
            self.batch,
            self.q_heads,
            self.kv_heads,
            self.q_len,
            self.kv_len,
            self.head_dim,
            self.v_dim,
            self.left,
            self.right,
            self.offset,
            self.k_batch,
            self.v_batch,
        )


def products_us(device: Device, a: Attention, scores: float) -> float:
    """Core time of both products for that many scores."""
    depth = padded(a.head_dim, 16) + padded(a.v_dim, 16)
    return 2.0 * scores * depth / device.cube_flop_per_us(a.dtype)
