"""Paths merged onto few streams, as the graph engine's automatic modes do it.

CANN GE, ``compiler/graph/build/dag`` (behaviour only). Paths are placed one by one, those that
begin on the earliest level first; each takes, of a few candidate streams, the one of least
score. Loads are counted in tasks per level; a level is the longest path to a task, in edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

WINDOW = 6
"""Levels looked at from a path's first one on."""

CANDIDATES = 6
LIGHTEST = 3


class RouteMerger(ABC):
    """Gives each path of a DAG one of ``streams`` streams; ``score`` is what differs."""

    def __init__(
        self,
        routes: Sequence[Sequence[int]],
        preds: Sequence[Sequence[int]],
        streams: int,
    ) -> None:
        self.routes = routes
        self.streams = streams
        self.level = levels(preds)
        width: dict[int, int] = {}
        for at in self.level:
            width[at] = width.get(at, 0) + 1
        self.solo = [width[at] == 1 for at in self.level]
        self.home: list[int] = [-1] * len(routes)
        self.load: list[dict[int, int]] = []
        self.total: list[int] = []
        self.edges = self._edges(preds)

    def _edges(self, preds: Sequence[Sequence[int]]) -> list[dict[int, int]]:
        """How many edges each path has to each other one."""
        route_of = [0] * len(preds)
        for r, route in enumerate(self.routes):
            for node in route:
                route_of[node] = r
        found: list[dict[int, int]] = [{} for _ in self.routes]
        for node, before in enumerate(preds):
            for pred in before:
                a, b = route_of[pred], route_of[node]
                if a != b:
                    found[a][b] = found[a].get(b, 0) + 1
                    found[b][a] = found[b].get(a, 0) + 1
        return found

    def run(self) -> list[int]:
        """The stream of each path."""
        for route in sorted(range(len(self.routes)), key=self._urgency):
            found = self.forced(route)
            if found is None:
                scored = ((self.score(route, s), s) for s in self._candidates(route))
                found = min(scored)[1]
            self._place(route, found)
        return self.home

    def _urgency(self, route: int) -> tuple[int, int, int, int]:
        nodes = self.routes[route]
        return (self.level[nodes[0]], -len(nodes), -sum(self.edges[route].values()), route)

    def forced(self, route: int) -> int | None:
        """The stream that the path must go to, if there is one."""
        return None

    @abstractmethod
    def score(self, route: int, stream: int) -> float:
        """What putting the path there costs; the least wins, the lowest stream on a tie."""

    def _candidates(self, route: int) -> list[int]:
        """Streams of neighbours, the most joined first; the lightest ones; a new one."""
        near = self._joined(route)
        found = sorted(near, key=lambda s: (-near[s], s))
        light = sorted(range(len(self.load)), key=lambda s: (sum(self.window(route, s)), s))
        found += light[:LIGHTEST]
        found = list(dict.fromkeys(found))
        if len(self.load) >= self.streams:
            return found[:CANDIDATES]
        return [*found[: CANDIDATES - 1], len(self.load)]

    def _joined(self, route: int) -> dict[int, int]:
        near: dict[int, int] = {}
        for other, count in self.edges[route].items():
            home = self.home[other]
            if home >= 0:
                near[home] = near.get(home, 0) + count
        return near

    def crossing(self, route: int, stream: int) -> int:
        """Edges to paths that are on other streams."""
        near = self._joined(route)
        return sum(near.values()) - near.get(stream, 0)

    def window(self, route: int, stream: int) -> list[int]:
        """The stream's load on the levels from the path's first one on."""
        if stream == len(self.load):
            return [0] * WINDOW
        first = self.level[self.routes[route][0]]
        return [self.load[stream].get(at, 0) for at in range(first, first + WINDOW)]

    def own(self, route: int) -> list[int]:
        """The path's own load on these levels."""
        first = self.level[self.routes[route][0]]
        found = [0] * WINDOW
        for node in self.routes[route][:WINDOW]:
            if self.level[node] - first < WINDOW:
                found[self.level[node] - first] += 1
        return found

    def is_new(self, stream: int) -> bool:
        """Whether nothing is on the stream yet."""
        return stream == len(self.load)

    def _place(self, route: int, stream: int) -> None:
        if self.is_new(stream):
            self.load.append({})
            self.total.append(0)
        self.home[route] = stream
        self.total[stream] += len(self.routes[route])
        load = self.load[stream]
        for node in self.routes[route]:
            load[self.level[node]] = load.get(self.level[node], 0) + 1


def levels(preds: Sequence[Sequence[int]]) -> list[int]:
    """The longest path to each node, in edges; nodes are in a topological order."""
    found: list[int] = []
    for before in preds:
        found.append(max((found[p] + 1 for p in before), default=0))
    return found
