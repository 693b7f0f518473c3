"""The memory that a layout needs on a card, at least and in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Buffer
from gecompiler.passes.memory.plan import MemoryPlan
from gecompiler.passes.pipeline_parallel import PipelineShape
from gecompiler.passes.pipeline_parallel.chunk import crosses
from gecompiler.passes.pipeline_parallel.phases import part_of
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


def pipeline_memory(
    pieces: Sequence[tuple[Graph, MemoryPlan]], shape: PipelineShape, stage: int, *, training: bool
) -> Memory:
    """A stage's memory, from the plans of its pieces for one micro-batch.

    What a micro-batch brings and takes (inputs, outputs, KV cache) is there for all of them; what
    a backward pass needs of a forward pass is there once for each in flight; the rest is the
    largest of any piece. What is on its way to and from other stages is held twice.
    """
    count = shape.micro_batches
    own = [rank_memory(p.buffers, p.arena_bytes, training=training) for _, p in pieces]
    saved = sum(_saved_bytes(graph) for graph, _ in pieces) / len(pieces)
    made = sum(_output_bytes(p) for _, p in pieces)
    moving = max(_crossing_bytes(graph) for graph, _ in pieces)
    working = max(m.activations for m in own)
    held = (shape.peak_in_flight(stage) - 1) * saved if training else 0.0
    outputs = 0 if training else (count - 1) * made
    return Memory(
        weights=sum(m.weights for m in own),
        activations=round(working + held + outputs + moving),
        kv_cache=count * sum(m.kv_cache for m in own),
        optimizer=sum(m.optimizer for m in own),
        inputs=count * sum(m.inputs for m in own),
    )


def _saved_bytes(graph: Graph) -> float:
    """What the forward pass makes and the backward pass reads."""
    parts = {op.name: part_of(op) for op in graph.ops}
    total = 0.0
    for op in graph.ops:
        if parts[op.name] != "forward":
            continue
        for value in op.outputs:
            if value and any(parts[user.name] == "backward" for user in graph.users(value)):
                total += _bytes(graph, value)
    return total


def _crossing_bytes(graph: Graph) -> float:
    """What the piece sends and receives of one micro-batch."""
    return sum(
        _bytes(graph, v) for op in graph.ops if crosses(op) for v in (*op.inputs, *op.outputs)
    )


def _output_bytes(plan: MemoryPlan) -> int:
    return sum(b.bytes for b in plan.buffers if b.kind == "output" and b.alias_of is None)


def _bytes(graph: Graph, value: str) -> float:
    type_ = graph.tensor(value)
    return float(type_.bytes) if type_ is not None and type_.is_static else 0.0


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
