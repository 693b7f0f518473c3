"""What a schedule is built from, and what is known of it: options, user control, result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import Schedule, SyncPrimitive
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.streams.custom import StreamAssignStrategy
from gecompiler.passes.streams.registry import check_strategy
from gecompiler.passes.streams.strategy import SolverReport
from gecompiler.passes.streams.sync_points import SyncPoint

if TYPE_CHECKING:
    from gecompiler.passes.scheduling.placement_log import Decided
    from gecompiler.passes.streams.collective_streams import Apart
    from gecompiler.passes.streams.sync_points import PartsOf


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """How to schedule. UsageError for values that make no sense.

    ``num_streams`` None means as many as help, up to the device's maximum.
    """

    num_streams: int | None = None
    strategy: str = "auto"
    auto_min_gain: float = 0.05
    overlap_ratio: float = 0.7
    pipeline_depth: int = 2
    enable_parallel: bool = True
    strict_memory: bool = False
    engine_streams: Mapping[str, int] = field(default_factory=dict)
    """``default``: how many streams an engine may have, by engine, 1 where not given."""
    memory_priority: bool = False
    """``default``: tasks take their predecessors' streams whoever else waits for them."""
    solver_seconds: float = 10.0
    """``optimal``: the solver's limit in deterministic time."""
    seed: int = 0
    """``optimal`` and searches: the seed of everything drawn."""
    search_tasks: int = 30_000
    """``auto``, ``pipeline``: how many tasks are simulated in all to improve the best candidate;
    0 for none."""
    auto_micro_batches: bool = False
    """Whether ``auto`` may split the batch; what is scheduled is then `ScheduleResult.graph`."""
    sync_primitive: SyncPrimitive = "event"
    """What waits use: events, or notifies (the graph engine's ``ge.event``)."""
    merge_waits: bool = False
    """Whether waits are merged, which adds orders, where the simulated time does not grow."""
    samples: tuple[str, ...] = ()
    """Inputs known to have the batch as first dim; without any, shapes tell."""

    def __post_init__(self) -> None:
        check_strategy(self.strategy)
        if self.num_streams is not None and self.num_streams < 1:
            raise UsageError(
                f"expected a number from 1, found {self.num_streams}", where="option 'num_streams'"
            )
        for name in ("auto_min_gain", "overlap_ratio"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UsageError(
                    f"expected a number from 0 to 1, found {value}", where=f"option {name!r}"
                )
        if self.search_tasks < 0:
            raise UsageError(
                f"expected a number from 0, found {self.search_tasks}",
                where="option 'search_tasks'",
            )
        if not 0 < self.solver_seconds <= 86_400:
            raise UsageError(
                f"expected seconds, up to a day, found {self.solver_seconds}",
                where="option 'solver_seconds'",
            )
        if self.pipeline_depth < 1:
            raise UsageError(
                f"expected a number from 1, found {self.pipeline_depth}",
                where="option 'pipeline_depth'",
            )


@dataclass(frozen=True)
class UserControl:
    """What the user decided: streams by name, sync points, a strategy of their own."""

    assignment: Mapping[str, int] = field(default_factory=dict)
    sync_points: Sequence[SyncPoint] = ()
    strategy: StreamAssignStrategy | None = None
    strategy_seconds: float = 60.0
    """How long the strategy may take."""
    parts_of: PartsOf | None = None
    """How names of sync points find ops, where not by the names of the graph itself."""
    collectives: Apart | None = None
    """Where the graph is what one of several cards runs."""


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One schedule that was considered; ``note`` says why it was not simulated, if so."""

    strategy: str
    streams: int
    makespan_us: float | None
    events: int
    chosen: bool
    note: str = ""


@dataclass(frozen=True)
class ScheduleResult:
    """A schedule, its simulated timeline, and how it compares."""

    schedule: Schedule
    timeline: Timeline
    graph: Graph
    """The graph that was scheduled: the one given, or the same in micro-batches."""
    micro_batches: tuple[int, ...]
    """Samples in each micro-batch; empty when the batch was not split."""
    strategy: str
    """The strategy asked for."""
    chosen: str
    """The strategy that made the schedule: another one under ``auto``, and under
    ``pipeline`` where the batch cannot be split."""
    requested: int | None
    """The number of streams asked for, None for automatic."""
    used: int
    cross_stream_dependencies: int
    ge_rule_events: int
    events: int
    """Waits in the schedule."""
    event_ids: int
    user_points: int
    """The user's sync points in force."""
    redundant_points: tuple[SyncPoint, ...]
    makespan_us: float
    period_us: float
    """Steady distance between two iterations; the makespan where they do not overlap."""
    best_found_us: float
    single_stream_us: float
    critical_path_us: float
    bounds: Mapping[str, float]
    """Lower bounds by name: critical_path, streams, and the resources."""
    lower_bound_us: float
    binding_resource: str
    peak_memory_bytes: int
    live_memory_bytes: int
    """The most that is live at once: no memory plan can be smaller."""
    weight_bytes: int
    memory_planner: str
    candidates: tuple[CandidateRow, ...]
    solver: SolverReport | None = None
    """What the solver proved of tasks at fixed rates, under ``optimal``."""
    single_timeline: Timeline | None = None
    """The run behind ``single_stream_us``; its tasks are those of the whole batch."""
    decided: Decided | None = None
    """The placement taken, of which `placement_log.reasons` says why each task is where it is."""
