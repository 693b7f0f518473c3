"""What each rank's part of a collective asks of the links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gecompiler.backends.cluster import Cluster
from gecompiler.ir.collective_ops import POINT_TO_POINT, signature
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.ir.schedule import Demand


class Demands:
    """Answers for `merge`; a rank's links carry what its like put there that are not simulated.

    Ranks that run the same come to a collective at the same time, so that what all their groups
    send over a link that they share (a node's ports) is there at once. Neither do they share
    links with ranks that run something else, as far as is assumed here.
    """

    def __init__(self, cluster: Cluster, program: ParallelProgram, ranks: Sequence[int]) -> None:
        self.cluster = cluster
        self.program = program
        self._absent: dict[int, list[int]] = {}
        """Ranks of each template that ``ranks``, those simulated, stand for."""
        self._present: dict[int, int] = {}
        there = set(ranks)
        for rank, template in enumerate(program.template_of):
            if rank in there:
                self._present[template] = self._present.get(template, 0) + 1
            else:
                self._absent.setdefault(template, []).append(rank)
        self._known: dict[tuple[object, ...], Demand] = {}
        self._shared: dict[tuple[object, ...], dict[str, float]] = {}

    def __call__(self, graph: Graph, op: Op, rank: int) -> Demand:
        """The demand of that rank's part."""
        key = (*_key(graph, op), rank)
        found = self._known.get(key)
        if found is None:
            found = self.cluster.at(rank).demand(graph, op)
            if found.link_bytes and self.program.template_of[rank] in self._absent:
                found = self._with_like(graph, op, rank, found)
            self._known[key] = found
        return found

    def _with_like(self, graph: Graph, op: Op, rank: int, own: Demand) -> Demand:
        template = self.program.template_of[rank]
        key = (*_key(graph, op), template)
        if key not in self._shared:
            total: dict[str, float] = {}
            for other in self._absent[template]:
                for link, amount in self.cluster.at(other).demand(graph, op).link_bytes:
                    total[link] = total.get(link, 0.0) + amount
            self._shared[key] = {n: v / self._present[template] for n, v in total.items()}
        table = self._shared[key]
        bytes_ = [(link, amount + table.get(link, 0.0)) for link, amount in own.link_bytes]
        return replace(own, link_bytes=tuple(bytes_))


def _key(graph: Graph, op: Op) -> tuple[object, ...]:
    """What the demand depends on, but for the rank. Tags of transfers do not matter."""
    peer = op.attr("peer") if op.op_type in POINT_TO_POINT else None
    said = signature(graph, op)
    if peer is not None:
        said = said.partition(" ")[2].partition(" ")[2]
    return op.op_type, op.attr("communicator"), peer, op.attr("root"), said
