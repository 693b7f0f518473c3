"""The memory that a layout needs on a card, at least and in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.schedule import Buffer
from gecompiler.planning.facts import ModelFacts
from gecompiler.planning.layouts import Layout

OPTIMIZER_STATES = ("m", "v", "master", "step")
"""How the state of optimisers is named, behind the parameter's name."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the card that holds most, by what they are for."""

    weights: int = 0
    activations: int = 0
    kv_cache: int = 0
    gradients: int = 0
    optimizer: int = 0
    inputs: int = 0

    @property
    def total(self) -> int:
        """All together."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return {
            "weights": self.weights,
            "activations": self.activations,
            "kv_cache": self.kv_cache,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "inputs": self.inputs,
        }


def rank_memory(buffers: Sequence[Buffer], arena_bytes: int, *, training: bool = False) -> Memory:
    """A rank's memory from its planned buffers.

    In a training step parameters and what the optimiser keeps are both state: those named
    ``parameter/moment`` are the optimiser's.
    """
    kinds = dict.fromkeys(("weight", "state", "input"), 0)
    kept = 0
    for buffer in buffers:
        if buffer.alias_of is not None or buffer.kind not in kinds:
            continue
        kinds[buffer.kind] += buffer.bytes
        if buffer.kind == "state" and buffer.tensor.rpartition("/")[2] in OPTIMIZER_STATES:
            kept += buffer.bytes
    rest = arena_bytes - sum(kinds.values())
    if not training:
        return Memory(kinds["weight"], rest, kv_cache=kinds["state"], inputs=kinds["input"])
    weights = kinds["weight"] + kinds["state"] - kept
    return Memory(weights, rest, optimizer=kept, inputs=kinds["input"])


def least_memory(facts: ModelFacts, layout: Layout, *, training: bool = False) -> float:
    """Bytes that a card of the layout needs whatever else: weights and KV cache evenly shared.

    A bound from below: weights are held by every card of dp and sp, and split over tp, ep and pp
    at best; the cache is split over all axes at best, but for KV heads that several hold.
    """
    shares = layout.tp * layout.ep * layout.pp
    weights = facts.weight_bytes / shares
    holders = max(1, layout.tp // max(1, facts.kv_heads)) if facts.kv_heads else 1
    cards = shares * layout.sp * layout.dp
    cache = facts.state_bytes * holders / cards
    return weights + cache + (0.0 if not training else weights)
