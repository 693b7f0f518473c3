"""Which placement is taken: the one asked for, or the best of those that ``auto`` tries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.target import Evaluator
from gecompiler.passes.schedule_records import CandidateRow
from gecompiler.passes.streams.auto import AutoStreams, choose
from gecompiler.passes.streams.bounds import Bounds, lower_bounds
from gecompiler.passes.streams.evaluation import Evaluated, evaluate
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import Placement, StrategyContext
from gecompiler.passes.task_graph import TaskGraph


@dataclass
class Search:
    """Simulates candidates and remembers what it saw.

    ``single`` is the graph on one stream, whatever the user fixed: what all is compared with.
    """

    graph: TaskGraph
    context: StrategyContext
    evaluator: Evaluator
    found: list[Evaluated] = field(default_factory=list)
    skipped: list[CandidateRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        alone = SingleStream().assign(self.graph, replace(self.context, fixed={}))
        self.single = evaluate("single", alone, self.context.target, self.evaluator)

    def run(self, strategy: str, min_gain: float) -> Evaluated:
        """The schedule to take. ScheduleError when the device cannot hold the one asked for."""
        if strategy != "auto":
            placement = make_strategy(strategy).assign(self.graph, self.context)
            self.found.append(self._evaluate(strategy, placement))
            return self.found[0]
        for name, candidate in AutoStreams().candidates(self.graph, self.context):
            try:
                self.found.append(self._evaluate(name, candidate))
            except ScheduleError as error:
                self.skipped.append(
                    CandidateRow(name, candidate.used, None, 0, False, error.message)
                )
        if not self.found:
            raise ScheduleError(self.skipped[0].note, where=self.graph.name)
        return choose(self.found, min_gain)

    def _evaluate(self, name: str, placement: Placement) -> Evaluated:
        known = self.single.placement
        if placement.stream == known.stream and placement.sequence == known.sequence:
            return replace(self.single, strategy=name)
        return evaluate(name, placement, self.context.target, self.evaluator)

    @property
    def best(self) -> Evaluated:
        """The fastest of all that was simulated, one stream included."""
        return min([self.single, *self.found], key=lambda e: e.makespan_ns)

    def bounds(self, winner: Evaluated) -> Bounds:
        """Lower bounds for the winner's task graph.

        When a candidate that splits tasks is faster than these allow for tasks as they are,
        the bounds of that candidate's graph, which hold for both.
        """
        target, streams = self.context.target, self.context.streams
        own = lower_bounds(winner.placement.graph, target, streams)
        if own.best * 1000 <= self.best.makespan_ns:
            return own
        return lower_bounds(self.best.placement.graph, target, streams)

    def rows(self, winner: Evaluated) -> tuple[CandidateRow, ...]:
        """All candidates as a table, in the order they were tried."""
        rows = [
            CandidateRow(
                e.strategy,
                e.placement.used,
                e.makespan_ns / 1000,
                len(e.synced.plan.events),
                e is winner,
            )
            for e in self.found
        ]
        return (*rows, *self.skipped)
