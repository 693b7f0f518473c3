"""What the graph engine's automatic modes share: paths of free tasks, merged onto N streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.folding import dense
from gecompiler.passes.streams.path_cover import minimum_path_cover
from gecompiler.passes.streams.route_merge import RouteMerger
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)


@dataclass(frozen=True)
class DagMode(StreamStrategy):
    """Base of ``load_balance`` and ``main_stream``.

    ``count`` is the N of ``load_balance:N``: how many streams the paths are merged onto, by
    default as many as there are. Each label has a stream of its own besides.
    """

    count: int | None = None

    @abstractmethod
    def merger(
        self, routes: Sequence[Sequence[int]], preds: Sequence[Sequence[int]], streams: int
    ) -> RouteMerger:
        """How paths are merged."""

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        labels = {t: label for t, label in enumerate(graph.labels) if label and t not in fixed}
        room = max(0, context.streams - 1)  # labels beyond it share the last one's stream
        distinct = list(dict.fromkeys(labels.values())) if room else []
        own = {label: min(i, room - 1) for i, label in enumerate(distinct)}
        free = [t for t in range(len(graph)) if t not in fixed and labels.get(t) not in own]
        taken = min(len(distinct), room)
        streams = min(self.count or context.streams, context.streams - taken)
        preds, succs = residual(graph, free)
        routes = minimum_path_cover(succs)
        home = self.merger(routes, preds, streams).run()
        found = [0] * len(graph)
        reasons = dict.fromkeys(fixed, "fixed by the user")
        for route, stream in zip(routes, home, strict=True):
            for node in route:
                found[free[node]] = stream
                reasons[free[node]] = f"on a path of {len(route)} tasks"
        first = max(home, default=-1) + 1
        for task, label in labels.items():
            if label in own:
                found[task], reasons[task] = first + own[label], f"label {label!r}"
        return in_topological_order(graph, tuple(_settled(found, fixed, context)), reasons)


def _settled(found: list[int], fixed: dict[int, int], context: StrategyContext) -> list[int]:
    """Dense ids; where the user's leave too few, the highest join the first."""
    for task, stream in fixed.items():
        found[task] = stream
    if not fixed:
        return dense(found, {})
    limit = max(context.streams, *(s + 1 for s in fixed.values()))
    return [s if s < limit else 0 for s in found]


def residual(graph: TaskGraph, kept: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Direct edges among the kept tasks, those left out bypassed: (preds, succs) by position."""
    position = {task: i for i, task in enumerate(kept)}
    through: dict[int, dict[int, None]] = {}
    succs: list[list[int]] = [[] for _ in kept]
    for task in range(len(graph) - 1, -1, -1):
        ahead: dict[int, None] = {}
        for after in graph.succs[task]:
            if after in position:
                ahead[position[after]] = None
            else:
                ahead.update(through[after])
        if task in position:
            succs[position[task]] = sorted(ahead)
        else:
            through[task] = ahead
    preds: list[list[int]] = [[] for _ in kept]
    for node, after_nodes in enumerate(succs):
        for other in after_nodes:
            preds[other].append(node)
    return preds, succs
