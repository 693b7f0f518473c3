"""What each rank's part of a collective asks of the links."""

from __future__ import annotations

from dataclasses import replace

from gecompiler.backends.cluster import Cluster
from gecompiler.ir.collective_ops import POINT_TO_POINT, signature
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.ir.schedule import Demand


class Demands:
    """Answers for `merge`; with ``folded`` a rank's links carry what its like put there as well.

    Ranks that run the same come to a collective at the same time, so that what all their groups
    send over a link that they share (a node's ports) is there at once. Neither do they share
    links with ranks that run something else, as far as is assumed here.
    """

    def __init__(self, cluster: Cluster, program: ParallelProgram, *, folded: bool) -> None:
        self.cluster = cluster
        self.program = program
        self.folded = folded
        self._like: dict[int, list[int]] = {}
        for rank, template in enumerate(program.template_of):
            self._like.setdefault(template, []).append(rank)
        self._known: dict[tuple[object, ...], Demand] = {}
        self._shared: dict[tuple[object, ...], dict[str, float]] = {}

    def __call__(self, graph: Graph, op: Op, rank: int) -> Demand:
        """The demand of that rank's part."""
        key = (*_key(graph, op), rank)
        found = self._known.get(key)
        if found is None:
            found = self.cluster.at(rank).demand(graph, op)
            if self.folded and found.link_bytes:
                found = self._with_like(graph, op, rank, found)
            self._known[key] = found
        return found

    def _with_like(self, graph: Graph, op: Op, rank: int, own: Demand) -> Demand:
        template = self.program.template_of[rank]
        key = (*_key(graph, op), template)
        if key not in self._shared:
            total: dict[str, float] = {}
            for other in self._like[template]:
                for link, amount in self.cluster.at(other).demand(graph, op).link_bytes:
                    total[link] = total.get(link, 0.0) + amount
            self._shared[key] = total
        table = self._shared[key]
        return replace(own, link_bytes=tuple([(link, table[link]) for link, _ in own.link_bytes]))


def _key(graph: Graph, op: Op) -> tuple[object, ...]:
    """What the demand depends on, but for the rank. Tags of transfers do not matter."""
    peer = op.attr("peer") if op.op_type in POINT_TO_POINT else None
    said = signature(graph, op)
    if peer is not None:
        said = said.partition(" ")[2].partition(" ")[2]
    return op.op_type, op.attr("communicator"), peer, op.attr("root"), said
