"""The strategy ``default``: what the graph engine does."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.passes.streams.engines import ENGINES, UNKNOWN
from gecompiler.passes.streams.folding import dense, fold_ineffective, fold_to
from gecompiler.passes.streams.ladder import Ladder, Unit
from gecompiler.passes.streams.strategy import (
    Placement,
    StrategyContext,
    StreamStrategy,
    in_topological_order,
)
from gecompiler.passes.task_graph import TaskGraph


class DefaultStreams(StreamStrategy):
    """The graph engine's ladder: labels, independent engines, reuse along dependencies.

    Streams that only wait for each other are folded away. It overlaps engines and not
    branches: each engine has one stream unless a label says otherwise.
    """

    name = "default"

    def assign(self, graph: TaskGraph, context: StrategyContext) -> Placement:
        """See the base class."""
        fixed = context.fixed_streams(graph)
        labels = [
            f"stream {fixed[t]}" if t in fixed else label or ""
            for t, label in enumerate(graph.labels)
        ]
        units = [
            Unit(engine, user_label=label)
            for engine, label in zip(graph.engines, labels, strict=True)
        ]
        stream, rules = Ladder(units, graph.preds, graph.succs).run()
        kept = {t for t, label in enumerate(labels) if label}
        stream = _move_skipped(graph, stream, kept)
        closed = {stream[t] for t in kept}
        stream = fold_ineffective(graph.preds, graph.succs, stream, kept, closed)
        stream = dense(stream, fixed)
        stream = fold_to(graph, stream, context.streams, set(fixed.values()))
        stream = dense(stream, fixed)
        return in_topological_order(graph, tuple(stream), dict(enumerate(rules)))


def _move_skipped(graph: TaskGraph, stream: Sequence[int], kept: set[int]) -> list[int]:
    """Puts tasks of engines that need no stream where their neighbours are."""
    found = list(stream)
    for task, engine in enumerate(graph.engines):
        if task in kept or not ENGINES.get(engine, UNKNOWN).skip:
            continue
        around = {found[n] for n in (*graph.preds[task], *graph.succs[task])}
        if len(around) == 1:
            found[task] = around.pop()
        elif not graph.preds[task] and graph.succs[task]:
            found[task] = found[graph.succs[task][0]]
    return found
