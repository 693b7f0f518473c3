"""What ops cost on a card where the user gives measured times or blocks of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gecompiler.cards.names import own_name
from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.diagnostics import Diagnostics

if TYPE_CHECKING:
    from gecompiler.backends.cluster import Cluster
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.op import Op
    from gecompiler.ir.schedule import Demand
    from gecompiler.ir.target import Target
    from gecompiler.measured_target import MeasuredShare
    from gecompiler.passes.pipeline_parallel import PipelineShape

COSTS = ("durations", "attention_block_q", "attention_block_k")
"""The options that say what ops cost."""

Told = tuple[str, str, str]


@dataclass(frozen=True)
class LocalTarget:
    """A `Target` of one rank: collectives as its cluster has them, the rest as the user says.

    ``graphs`` are what the cards run of one micro-batch, ``targets`` what was found for each.
    """

    cluster: Cluster
    graphs: tuple[Graph, ...]
    targets: tuple[Target, ...]
    shape: PipelineShape | None = None
    measured: MeasuredShare | None = None
    """How much goes by measured times, all graphs together."""
    told: tuple[Told, ...] = ()
    """What there is to warn of."""

    @staticmethod
    def of(
        graphs: Sequence[Graph],
        cluster: Cluster,
        shape: PipelineShape | None,
        values: Mapping[str, Any],
    ) -> LocalTarget | None:
        """By these options; None where they say nothing. UsageError for no capture."""
        from gecompiler.schedule_request import schedule_target

        if not any(values.get(name) for name in COSTS):
            return None
        diagnostics = Diagnostics()
        found = [schedule_target(cluster.device, g, values, diagnostics) for g in graphs]
        share = _together([share for _, share in found if share is not None])
        told = dict.fromkeys((w.code, w.message, w.hint) for w in diagnostics)
        some = share is not None and share.measured
        kept = tuple(t for t in told if not (some and t[0] == "no-measured-ops"))
        targets = tuple(target for target, _ in found)
        return LocalTarget(cluster, tuple(graphs), targets, shape, share, kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def at(self, cluster: Cluster) -> LocalTarget:
        """The same as another rank sees it."""
        return replace(self, cluster=cluster)

    def demand(self, graph: Graph, op: Op) -> Demand:
        """What the rank's task of the op asks."""
        if is_collective_op(op):
            return self.cluster.demand(graph, op)
        own = own_name(op.name, self.shape).name
        pairs = zip(self.graphs, self.targets, strict=True)
        target = next((t for g, t in pairs if own in g), self.targets[0])
        return target.demand(graph, op if own == op.name else op.with_(name=own))


def at_rank(cluster: Cluster, rank: int, costs: LocalTarget | None) -> Target:
    """What the rank's tasks cost, as the user says where the user does."""
    found: Any = cluster.at(rank) if costs is None else costs.at(cluster.at(rank))
    return found  # type: ignore[no-any-return]


def _together(shares: Sequence[MeasuredShare]) -> MeasuredShare | None:
    """The shares of all graphs as one."""
    if not shares:
        return None
    return replace(
        shares[0],
        ops=sum(s.ops for s in shares),
        by_name=sum(s.by_name for s in shares),
        by_shapes=sum(s.by_shapes for s in shares),
        measured_us=math.fsum(s.measured_us for s in shares),
        modelled_us=math.fsum(s.modelled_us for s in shares),
    )
