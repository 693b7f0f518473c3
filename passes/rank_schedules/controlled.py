"""The schedule of what equal ranks run, by a strategy, by name, in an order, as the user wants."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.target import Evaluator, Target
from gecompiler.passes.rank_schedules.template import TemplateSchedule
from gecompiler.passes.scheduling.placement_log import Decided
from gecompiler.passes.scheduling.schedule_builder import build_schedule
from gecompiler.passes.scheduling.schedule_records import ScheduleOptions, UserControl
from gecompiler.passes.streams.collective_streams import Apart
from gecompiler.passes.streams.sync_points import SyncPoint

HCCL = "DNN_HCCL"
"""GE's engine of collectives."""


@dataclass(frozen=True)
class ControlledSchedule(TemplateSchedule):
    """One rank's schedule, and who decided what in it."""

    decided: Decided
    points: tuple[SyncPoint, ...] = ()
    """Those whose ends both are here."""
    redundant_points: tuple[SyncPoint, ...] = ()


def schedule_controlled(
    graph: Graph,
    target: Target,
    evaluator: Evaluator,
    options: ScheduleOptions,
    user: UserControl,
    diagnostics: Diagnostics,
    least_streams: int = 1,
) -> ControlledSchedule:
    """Schedules one rank by the options and the user's decisions; names are those of ``graph``.

    Candidates are simulated with nobody else there: a collective takes what it takes once all
    have come. Under ``default`` collectives share the streams that their engine may have (GE's
    streamMaxParallelNum), at least ``least_streams`` less one. Errors as of `build_schedule`.
    """
    most: int | None = None
    if options.strategy == "default":
        most = max(options.engine_streams.get(HCCL, 1), least_streams - 1)
    if options.strategy == "single":
        options = replace(options, num_streams=1)
    options = replace(options, search_tasks=0, auto_micro_batches=False, strict_memory=False)
    user = replace(user, collectives=Apart(most))
    result = build_schedule(graph, target, evaluator, options, user, diagnostics)
    decided = result.decided
    assert decided is not None
    return ControlledSchedule(
        result.graph,
        decided.synced.placement.graph,
        result.schedule,
        decided.synced,
        decided.memory,
        decided,
        tuple(user.sync_points),
        result.redundant_points,
    )
