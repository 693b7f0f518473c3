"""The strategy ``main_stream``: the graph engine's ``MainStream:N``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gecompiler.passes.streams.dag_mode import DagMode
from gecompiler.passes.streams.route_merge import RouteMerger


@dataclass(frozen=True)
class MainStream(DagMode):
    """Minimum path cover, what nothing runs beside kept on stream 0 (GE's MainStream:N)."""

    name: ClassVar[str] = "main_stream"

    def merger(
        self, routes: Sequence[Sequence[int]], preds: Sequence[Sequence[int]], streams: int
    ) -> RouteMerger:
        """See the base class."""
        return _MainFirst(routes, preds, streams)


class _MainFirst(RouteMerger):
    def forced(self, route: int) -> int | None:
        nodes = self.routes[route]
        alone = self.solo[nodes[0]] or all(self.solo[n] for n in nodes)
        return 0 if alone else None

    def score(self, route: int, stream: int) -> float:
        pairs = zip(self.window(route, stream), self.own(route), strict=True)
        solo = sum(self.solo[n] for n in self.routes[route])
        return (
            3 * self.crossing(route, stream)
            + 4 * sum(a * b for a, b in pairs)
            + 2 * self.is_new(stream)
            - 4 * (solo if stream == 0 else 0)
        )
