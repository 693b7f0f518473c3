"""More orders demanded of tasks that are placed already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gecompiler.ir.schedule import Control
from gecompiler.passes.scheduling.task_graph import topological_order
from gecompiler.passes.streams.strategy import Placement


def with_orders(placement: Placement, extra: Sequence[Control]) -> Placement:
    """The placement with these orders as well, each stream's own order kept.

    Tasks are numbered anew where an order needs that. ScheduleError when the orders contradict
    each other or the streams.
    """
    graph = placement.graph
    wider = replace(graph, controls=(*graph.controls, *extra))
    last: dict[int, int] = {}
    chain: list[Control] = []
    rank = [0] * len(graph)
    for place, task in enumerate(placement.sequence):
        rank[task] = place
        stream = placement.stream[task]
        if stream in last:
            chain.append(Control(last[stream], task, "graph"))
        last[stream] = task
    order = topological_order(replace(wider, controls=(*wider.controls, *chain)), rank)
    if all(c.producer < c.consumer for c in extra):
        return replace(placement, graph=wider, sequence=tuple(order))
    new = {old: i for i, old in enumerate(order)}
    return replace(
        placement,
        graph=wider.renumbered(order),
        stream=tuple(placement.stream[old] for old in order),
        sequence=tuple(range(len(order))),
        reasons={new[task]: why for task, why in placement.reasons.items()},
    )
