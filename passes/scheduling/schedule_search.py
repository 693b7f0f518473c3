"""Which placement is taken: the one asked for, or the best of those that ``auto`` tries."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gecompiler.ir.activity import tell
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import SyncPrimitive
from gecompiler.ir.target import Evaluator
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError
from gecompiler.passes.scheduling.pipeline_search import (
    OTHER_LAGS,
    Shape,
    asked_for,
    search_pipeline,
)
from gecompiler.passes.scheduling.schedule_records import CandidateRow, ScheduleOptions
from gecompiler.passes.scheduling.schedule_variant import Variant, Variants
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.auto import AutoStreams
from gecompiler.passes.streams.bounds import Bounds, lower_bounds
from gecompiler.passes.streams.evaluation import Evaluated, evaluate
from gecompiler.passes.streams.local_search import Effort, improve
from gecompiler.passes.streams.registry import make_strategy
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import Placement, StrategyContext
from gecompiler.passes.streams.turns import take_turns

LANES = (2, 4, 8)
"""``auto`` tries micro-batches on so many streams, as far as there are that many."""

MOST_WHOLE = 5_000
"""``auto`` splits no graph with more tasks than this, for the time that it takes."""

LEAST_RUNS, MOST_RUNS = 8, 150
"""Local search makes so many simulations; with fewer it is not worth beginning."""

LEAST_GAIN = 0.02
"""``auto`` splits no batch when the work bounds leave less to gain than this share."""


@dataclass(frozen=True)
class Tried:
    """A candidate that was simulated, and the variant of the graph that it schedules."""

    evaluated: Evaluated
    variant: Variant

    @property
    def makespan_ns(self) -> int:
        """Its simulated time."""
        return self.evaluated.makespan_ns

    @property
    def task_graph(self) -> TaskGraph:
        """The tasks it schedules, without the order it gives to micro-batches."""
        return self.variant.tasks if self.variant.sizes else self.evaluated.placement.graph


@dataclass
class Search:
    """Simulates candidates and remembers what it saw.

    ``single`` is the whole graph on one stream, whatever the user fixed: what all is compared
    with.
    """

    variants: Variants
    context: StrategyContext
    evaluator: Evaluator
    primitive: SyncPrimitive = "event"
    found: list[Tried] = field(default_factory=list)
    skipped: list[CandidateRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = self.variants.whole
        alone = SingleStream().assign(self.whole.tasks, replace(self.context, fixed={}))
        if self.whole.collectives is not None:
            alone = self.whole.settle(alone)
        target = self.context.target
        evaluated = evaluate("single", alone, target, self.evaluator, self.primitive)
        self.single = Tried(evaluated, self.whole)

    def run(self, options: ScheduleOptions) -> Tried:
        """The schedule to take. ScheduleError when the device cannot hold the one asked for."""
        strategy = options.strategy if options.enable_parallel else "single"
        if strategy == "auto":
            self._try_all(AutoStreams().candidates(self.whole.tasks, self._context(self.whole)))
            if options.auto_micro_batches and not self.variants.fixed:
                self._try_parts()
            self._require_one()
            self._improve(options)
            # Who asks for a number of streams wants what they bring, however little it is.
            return self._choose(0.0 if options.num_streams else options.auto_min_gain)
        if strategy == "pipeline":
            self._pipeline(options.pipeline_depth)
            self._require_one()
            self._take_turns(options.search_tasks)
            return min(self.found, key=lambda t: t.makespan_ns)
        placement = make_strategy(strategy).assign(self.whole.tasks, self._context(self.whole))
        self.found.append(self._try(strategy, placement, self.whole))
        return self.found[0]

    def _pipeline(self, depth: int) -> None:
        """Tries micro-batches; where there can be none, the whole batch, with a warning."""
        streams = self.context.streams
        if min(streams, depth) < 2:
            why = "there is one stream" if streams < 2 else "pipeline_depth is 1"
        else:
            try:
                shapes = asked_for(streams, depth)
                search_pipeline(shapes, self.variants, self.context, self._attempt, OTHER_LAGS)
                return
            except MixedSamplesError as error:
                why = str(error)
        self.variants.diagnostics.warn(
            "pipeline-not-possible",
            f"the batch is not split into micro-batches: {why}",
            "the whole batch is placed by 'single' or 'critical_path', whichever is faster",
        )
        context = self._context(self.whole)
        for name in ("single", "critical_path"):
            placed = make_strategy(name).assign(self.whole.tasks, context)
            self._try_all([(name, placed)])

    def _try_parts(self) -> None:
        """Micro-batches as candidates of ``auto``, where they could be faster than what is known.

        They are skipped where a resource is nearly as busy already as it can be: splitting
        takes no work away.
        """
        streams = min(self.context.streams, LANES[-1])
        if streams < 2 or len(self.whole.tasks) > MOST_WHOLE:
            return
        bounds = lower_bounds(self.whole.tasks, self.context.target, streams)
        if bounds.work * 1000 * (1 + LEAST_GAIN) >= self.best.makespan_ns:
            return
        lanes = [n for n in LANES if n < streams] + [streams]
        shapes = (Shape(n, n) for n in lanes)
        with suppress(MixedSamplesError):
            search_pipeline(shapes, self.variants, self.context, self._attempt, OTHER_LAGS)

    def _take_turns(self, tasks: int) -> int:
        """Micro-batches that take turns, where the best candidate has any; what is left to spend.

        ``tasks`` are how many may be simulated.
        """
        best = min(self.found, key=lambda t: t.makespan_ns)
        size = len(best.evaluated.placement.graph)
        runs = min(MOST_RUNS, tasks // max(1, size))
        if not best.variant.sizes or runs < LEAST_RUNS or best.variant.priority:
            return tasks
        start, target = best.evaluated, self.context.target
        found, used = take_turns(start, best.variant.parts, target, self.evaluator, runs)
        if found.makespan_ns < best.makespan_ns:
            self.found.append(Tried(found, best.variant))
        return tasks - used * size

    def _improve(self, options: ScheduleOptions) -> None:
        """Turns, then local search from the best candidate, as far as its size leaves runs."""
        tasks = self._take_turns(options.search_tasks)
        best = min(self.found, key=lambda t: t.makespan_ns)
        graph = best.evaluated.placement.graph
        runs = min(MOST_RUNS, tasks // max(1, len(graph)))
        if runs < LEAST_RUNS or self.context.streams < 2:
            return
        context = self._context(best.variant)
        effort = Effort(runs, self.bounds(best).best, options.seed)
        found = improve(
            best.evaluated,
            context.target,
            self.evaluator,
            context.streams,
            context.fixed_streams(graph).keys(),
            effort,
            best.variant.priority,
        )
        if found.makespan_ns < best.makespan_ns:
            self.found.append(Tried(found, best.variant))

    def _try_all(self, candidates: Iterable[tuple[str, Placement]]) -> None:
        for name, placement in candidates:
            tell(f"simulating candidates: {name} on {placement.used} stream(s)")
            self._attempt(placement, self.whole, name)

    def _attempt(
        self, placement: Placement, variant: Variant, name: str = "pipeline"
    ) -> Tried | None:
        """Simulates a candidate; None where the device cannot hold it, which is remembered."""
        try:
            self.found.append(self._try(name, placement, variant))
        except ScheduleError as error:
            row = CandidateRow(name, placement.used, None, 0, False, error.message)
            self.skipped.append(row)
            return None
        return self.found[-1]

    def _require_one(self) -> None:
        if not self.found:
            raise ScheduleError(self.skipped[0].note, where=self.whole.graph.name)

    def _choose(self, min_gain: float) -> Tried:
        """The fewest streams within ``min_gain`` of the shortest time; of these the shortest."""
        best = min(t.makespan_ns for t in self.found)
        near = [t for t in self.found if t.makespan_ns <= best * (1 + min_gain)]
        return min(near, key=lambda t: (t.evaluated.placement.used, t.makespan_ns))

    def _context(self, variant: Variant) -> StrategyContext:
        return replace(self.context, fixed=variant.fixed)

    def _try(self, name: str, placement: Placement, variant: Variant) -> Tried:
        placement = variant.settle(placement)
        known = self.single.evaluated.placement
        same = placement.stream == known.stream and placement.sequence == known.sequence
        if same and placement.graph is known.graph:
            return Tried(replace(self.single.evaluated, strategy=name), variant)
        target = self.context.target
        evaluated = evaluate(name, placement, target, self.evaluator, self.primitive)
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
        own = lower_bounds(winner.task_graph, target, streams)
        if own.best * 1000 <= self.best.makespan_ns:
            return own
        return lower_bounds(self.best.task_graph, target, streams)

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
