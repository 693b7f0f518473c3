"""Which part of a training step an op belongs to, in the words of a pipeline."""

from __future__ import annotations

from typing import Literal

from gecompiler.ir.op import Op
from gecompiler.ir.training_ops import GRADIENT_SYNC
from gecompiler.passes.pipeline_parallel.orders import Phase

Part = Phase | Literal["once"]
"""A step's phase, or what is done once for all micro-batches."""

_PARTS: dict[str, Part] = {
    "": "forward",
    "forward": "forward",
    "recompute": "backward",
    "backward": "backward",
    "sync": "once",
    "optimizer": "once",
}


def runs_beside(op: Op) -> bool:
    """Whether no computation of the step waits for the op: a sum over replicas."""
    return op.info.group == GRADIENT_SYNC


def part_of(op: Op) -> Part:
    """By `OpInfo.phase`; an op without one belongs to the forward pass."""
    return _PARTS.get(op.info.phase, "forward")
