"""The strategy ``auto``: tries the others on the simulator and takes the fewest streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.compute_overlap import ComputeOverlap
from gecompiler.passes.streams.critical_path import CriticalPath
from gecompiler.passes.streams.default import DefaultStreams
from gecompiler.passes.streams.heft import Heft
from gecompiler.passes.streams.load_balance import LoadBalance
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import Placement, StrategyContext, StreamStrategy

MANY_TASKS = 20_000
"""From this many tasks on only the widest of each kind of candidate is tried."""


class AutoStreams:
    """Simulates the candidates and takes the fewest streams that are nearly the best.

    Nearly is within ``auto_min_gain`` of the shortest time found, so that work that gains
    nothing from streams stays on one.
    """

    name: ClassVar[str] = "auto"

    def candidates(
        self, graph: TaskGraph, context: StrategyContext
    ) -> Iterator[tuple[str, Placement]]:
        """Placements worth simulating, each under its strategy's name; no two are the same."""
        seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        enough: dict[str, int] = {}
        for strategy, streams in self._plans(graph, context):
            if streams > enough.get(strategy.name, streams):
                continue  # a narrower one had a stream to spare
            placement = strategy.assign(graph, replace(context, streams=streams))
            if placement.used < streams:
                enough[strategy.name] = streams
            key = (placement.stream, placement.sequence)
            if key not in seen:
                seen.add(key)
                yield strategy.name, placement

    def _plans(
        self, graph: TaskGraph, context: StrategyContext
    ) -> Iterator[tuple[StreamStrategy, int]]:
        yield SingleStream(), 1
        if context.streams < 2:
            return
        yield DefaultStreams(), context.streams
        widths = _widths(context.streams)
        if len(graph) > MANY_TASKS:
            widths = widths[-1:]
        for width in widths:
            yield CriticalPath(), width
        if len(graph) <= MANY_TASKS:
            yield Heft(), context.streams
            yield LoadBalance(), context.streams
        yield ComputeOverlap(), 2  # loads share the memory: more streams for them gain nothing


def _widths(most: int) -> list[int]:
    """2, 3, 4, then doubling, and the maximum."""
    found = [w for w in (2, 3, 4) if w < most]
    width = 8
    while width < most:
        found.append(width)
        width *= 2
    return [*found, most]
