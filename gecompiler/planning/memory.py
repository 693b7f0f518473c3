"""The memory that a layout needs on a card, at least and in parts."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.planning.facts import ModelFacts
from gecompiler.planning.layouts import Layout

TRAINING_FACTOR = 8.0
"""Bytes of optimiser state and gradients a byte of f16 weights, with Adam in mixed precision:
2 of weights, 2 of gradients, 12 of a master copy and two moments (Rajbhandari et al. 2020, ZeRO,
section 3.1), of which this leaves out the weights themselves and halves by their 2 bytes."""


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
