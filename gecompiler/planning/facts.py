"""What of a model says which parallel layouts there can be, and what they must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gecompiler.driver import Source
    from gecompiler.ir.graph import Graph


@dataclass(frozen=True)
class ModelFacts:
    """Sizes that layouts must divide, and bytes that they share. 0 where there is none."""

    batch: int
    seq: int
    """Tokens of a sample that come in at once: 1 in a decode step."""
    cuttable: bool
    """Whether the batch can be cut into micro-batches: whether it is a symbol of the model."""
    layers: int
    q_heads: int
    kv_heads: int
    experts: int
    weight_bytes: int
    state_bytes: int
    """Of the KV cache, for the whole batch."""
    parameters: int
    hidden: int = 0
    """The width of what layers hand on."""
    kv_width: int = 0
    """Elements of a token's keys and values in a layer: KV heads x (head dims of both)."""
    cached: int = 0
    """Keys that the longest KV cache holds when a run begins."""

    @property
    def tokens(self) -> int:
        """Tokens that one run takes in."""
        return self.batch * max(1, self.seq)


def model_facts(
    source: Source, graph: Graph, binding: Mapping[str, int], *, training: bool = False
) -> ModelFacts:
    """The facts of a model whose sizes are bound; ``graph`` is the bound graph."""
    from gecompiler.cards.batch_cut import not_joined
    from gecompiler.ir.bind.roles import batch_symbols, token_inputs
    from gecompiler.ir.types import TensorType

    heads = [site.q_heads for site in source.sites if site.q_heads]
    kv_heads = [site.kv_heads for site in source.sites if site.kv_heads]
    states = [graph.type(state.input) for state in graph.states]
    shape = next(iter(token_inputs(graph).values()), ())
    sizes = [size for size in shape if isinstance(size, int)]
    return ModelFacts(
        batch=sizes[0] if sizes else 1,
        seq=sizes[1] if len(sizes) > 1 else 1,
        cuttable=any(name in binding for name in batch_symbols(source.graph))
        and (training or not not_joined(source.graph, binding, 2)),
        layers=len(source.sites),
        q_heads=math.gcd(*heads) if heads else 0,
        kv_heads=math.gcd(*kv_heads) if kv_heads else 0,
        experts=_experts(graph),
        weight_bytes=sum(c.type.bytes for c in graph.constants.values()),
        state_bytes=sum(t.bytes for t in states if isinstance(t, TensorType)),
        parameters=source.parameters,
        hidden=_hidden(graph),
        kv_width=_kv_width(source),
        cached=_cached(graph),
    )


def _cached(graph: Graph) -> int:
    lengths = [
        type_.sizes[state.axis]
        for state in graph.states
        if state.axis is not None
        and (type_ := graph.tensor(state.input)) is not None
        and type_.is_static
    ]
    return max(lengths, default=0)


def _kv_width(source: Source) -> int:
    """The most of any attention."""
    return max(
        (
            site.kv_heads * (site.head_dim + site.v_head_dim)
            for site in source.sites
            if site.kv_heads and isinstance(site.head_dim, int) and isinstance(site.v_head_dim, int)
        ),
        default=0,
    )


def _hidden(graph: Graph) -> int:
    """The width that most norms are over, the widest of equals."""
    widths: dict[int, int] = {}
    for op in graph.ops:
        if op.op_type.endswith(("Norm", "Normalization")):
            type_ = graph.tensor(op.inputs[0])
            if type_ is not None and type_.is_static and type_.sizes:
                widths[type_.sizes[-1]] = widths.get(type_.sizes[-1], 0) + 1
    return max(widths, key=lambda width: (widths[width], width), default=0)


def _experts(graph: Graph) -> int:
    """The experts of the mixtures in the model: what stacked weights have in their first dim."""
    counts = [
        constant.type.sizes[0]
        for op in graph.ops
        if op.op_type in ("MatMul", "Einsum", "Gather", "GatherND")
        for value in op.inputs
        if (constant := graph.constant(value)) is not None
        and len(constant.type.sizes) == 3
        and constant.type.sizes[0] > 1
    ]
    return math.gcd(*counts) if counts else 0
