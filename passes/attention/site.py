"""What is known of one attention of the source model; reports list these."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.dims import Dim


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One attention, written out as softmax or already one op, fused or refused.

    ``window`` is (left, right), inclusive, -1 unbounded. ``mask`` is one of none, causal,
    sliding_window, padding, causal+padding, sliding_window+padding, additive, boolean;
    ``proven`` says what holds beneath an additive mask. Fields are None where the site was
    refused before they were found.
    """

    name: str
    """The softmax's (or attention op's) node name in the source model."""
    fused: bool
    reason: str = ""
    """Why it was refused: the node where matching stopped and what was found there."""
    q_heads: int | None = None
    kv_heads: int | None = None
    head_dim: Dim | None = None
    v_head_dim: Dim | None = None
    scale: float | None = None
    softcap: float | None = None
    mask: str | None = None
    window: tuple[int, int] = (-1, -1)
    proven: str | None = None
    kv_cache: bool = False
