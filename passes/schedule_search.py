"""Which placement is taken: the one asked for, or the best of those that ``auto`` tries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.target import Evaluator
from gecompiler.passes.batch_site import MixedSamplesError
from gecompiler.passes.schedule_records import CandidateRow, ScheduleOptions
from gecompiler.passes.schedule_variant import Variant, Variants
from gecompiler.passes.streams.auto import AutoStreams
from gecompiler.passes.streams.bounds import Bounds, lower_bounds
from gecompiler.passes.streams.evaluation import Evaluated, evaluate
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import Placement, StrategyContext

AUTO_PARTS = 2
"""``auto`` tries the batch in this many parts: more parts read the weights more often."""


@dataclass(frozen=True)
class Tried:
    """A candidate that was simulated, and the variant of the graph that it schedules."""

    evaluated: Evaluated
    variant: Variant

    @property
    def makespan_ns(self) -> int:
        """Its simulated time."""
        return self.evaluated.makespan_ns


@dataclass
class Search:
    """Simulates candidates and remembers what it saw.

    ``single`` is the whole graph on one stream, whatever the user fixed: what all is compared
    with.
    """

    variants: Variants
    context: StrategyContext
    evaluator: Evaluator
    found: list[Tried] = field(default_factory=list)
    skipped: list[CandidateRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = self.variants.whole()
        alone = SingleStream().assign(self.whole.tasks, replace(self.context, fixed={}))
        evaluated = evaluate("single", alone, self.context.target, self.evaluator)
        self.single = Tried(evaluated, self.whole)

    def run(self, options: ScheduleOptions) -> Tried:
        """The schedule to take. ScheduleError when the device cannot hold the one asked for."""
        strategy = options.strategy if options.enable_parallel else "single"
        if strategy != "auto":
            variant = self._asked_for(strategy, options)
            placement = make_strategy(strategy).assign(variant.tasks, self._context(variant))
            self.found.append(self._try(strategy, placement, variant))
            return self.found[0]
        for name, placement, variant in self._candidates(options):
            try:
                self.found.append(self._try(name, placement, variant))
            except ScheduleError as error:
                row = CandidateRow(name, placement.used, None, 0, False, error.message)
                self.skipped.append(row)
        if not self.found:
            raise ScheduleError(self.skipped[0].note, where=self.whole.graph.name)
        return self._choose(options.auto_min_gain)

    def _asked_for(self, strategy: str, options: ScheduleOptions) -> Variant:
        """The graph in micro-batches for ``pipeline``, where its batch can be split."""
        if strategy != "pipeline" or self.context.streams < 2:
            return self.whole
        try:
            return self.variants.in_parts(options.pipeline_depth)
        except MixedSamplesError as error:
            self.variants.diagnostics.warn(
                "pipeline-unsplit",
                f"the batch cannot be split into micro-batches: {error}",
                "the whole batch is placed as `critical_path` does it",
            )
            return self.whole

    def _candidates(self, options: ScheduleOptions) -> Iterator[tuple[str, Placement, Variant]]:
        auto = AutoStreams()
        for name, placement in auto.candidates(self.whole.tasks, self._context(self.whole)):
            yield name, placement, self.whole
        if not options.auto_micro_batches or self.context.streams < 2:
            return
        try:
            variant = self.variants.in_parts(AUTO_PARTS)
        except MixedSamplesError:
            return
        least = lower_bounds(variant.tasks, self.context.target, self.context.streams).best
        if least * 1000 >= self.best.makespan_ns:
            return  # no placement of the parts can be faster than what is known
        for name, placement in auto.in_parts(variant.tasks, self._context(variant)):
            yield name, placement, variant

    def _choose(self, min_gain: float) -> Tried:
        """The fewest streams within ``min_gain`` of the shortest time; of these the shortest."""
        best = min(t.makespan_ns for t in self.found)
        near = [t for t in self.found if t.makespan_ns <= best * (1 + min_gain)]
        return min(near, key=lambda t: (t.evaluated.placement.used, t.makespan_ns))

    def _context(self, variant: Variant) -> StrategyContext:
        return replace(self.context, fixed=variant.fixed)

    def _try(self, name: str, placement: Placement, variant: Variant) -> Tried:
        known = self.single.evaluated.placement
        same = placement.stream == known.stream and placement.sequence == known.sequence
        if same and placement.graph is known.graph:
            return Tried(replace(self.single.evaluated, strategy=name), variant)
        evaluated = evaluate(name, placement, self.context.target, self.evaluator)
        return Tried(evaluated, variant)

    @property
    def best(self) -> Tried:
        """The fastest of all that was simulated, one stream included."""
        return min([self.single, *self.found], key=lambda t: t.makespan_ns)

    def bounds(self, winner: Tried) -> Bounds:
        """Lower bounds for the winner's task graph.

        When a candidate that splits tasks is faster than these allow for tasks as they are,
        the bounds of that candidate's graph, which hold for both.
        """
        target, streams = self.context.target, self.context.streams
        own = lower_bounds(winner.evaluated.placement.graph, target, streams)
        if own.best * 1000 <= self.best.makespan_ns:
            return own
        return lower_bounds(self.best.evaluated.placement.graph, target, streams)

    def rows(self, winner: Tried) -> tuple[CandidateRow, ...]:
        """All candidates as a table, in the order they were tried."""
        rows = [
            CandidateRow(
                t.evaluated.strategy,
                t.evaluated.placement.used,
                t.makespan_ns / 1000,
                len(t.evaluated.synced.plan.events),
                t is winner,
            )
            for t in self.found
        ]
        return (*rows, *self.skipped)
