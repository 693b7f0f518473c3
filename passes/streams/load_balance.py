"""The strategy ``load_balance``: the graph engine's ``LoadBalance:N``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pvariance
from typing import ClassVar

from gecompiler.passes.streams.dag_mode import DagMode
from gecompiler.passes.streams.route_merge import RouteMerger


@dataclass(frozen=True)
class LoadBalance(DagMode):
    """Minimum path cover, the paths merged so that no stream is crowded (GE's LoadBalance:N)."""

    name: ClassVar[str] = "load_balance"

    def merger(
        self, routes: Sequence[Sequence[int]], preds: Sequence[Sequence[int]], streams: int
    ) -> RouteMerger:
        """See the base class."""
        return _Balanced(routes, preds, streams)


class _Balanced(RouteMerger):
    def score(self, route: int, stream: int) -> float:
        both = [a + b for a, b in zip(self.window(route, stream), self.own(route), strict=True)]
        total = len(self.routes[route]) + (0 if self.is_new(stream) else self.total[stream])
        crowd = max(both) + pvariance(both)
        return 3 * self.crossing(route, stream) + 4 * crowd + total + 2 * self.is_new(stream)
