"""All ranks of a parallel program: scheduled, merged, simulated in one timeline.

Equal ranks are scheduled once. Where all of them together are too many tasks, one of each kind
is simulated, and the others are held to be where it is (``folded``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gecompiler.backends.cluster import Cluster
from gecompiler.cards.demands import Demands
from gecompiler.cards.local_target import LocalTarget, at_rank
from gecompiler.cards.names import own_name
from gecompiler.ir.collective_ops import POINT_TO_POINT, is_collective_op
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.schedule_verify import verify_schedule
from gecompiler.ir.timeline import Timeline
from gecompiler.passes.pipeline_parallel import PipelineShape, Step, unroll
from gecompiler.passes.pipeline_parallel.chunk import crosses
from gecompiler.passes.pipeline_parallel.phases import part_of
from gecompiler.passes.rank_schedules import (
    RankFigures,
    TemplateSchedule,
    by_template,
    merge,
    rank_figures,
    representatives,
    schedule_template,
    volume_by_axes,
)

if TYPE_CHECKING:
    from gecompiler.cards.control import Control
    from gecompiler.cards.side_by_side import TriedWay
    from gecompiler.ir.graph import Graph
    from gecompiler.measured_target import MeasuredShare
    from gecompiler.passes.pipeline_parallel.sequence import Duration
    from gecompiler.passes.training.ranks import TrainingProgram

MOST_TASKS = 40_000
"""With more tasks on all ranks together one rank of each kind is simulated."""


@dataclass(frozen=True)
class CardsResult:
    """All ranks of a program, scheduled and simulated."""

    program: ParallelProgram
    cluster: Cluster
    parts: tuple[TemplateSchedule, ...]
    """By template."""
    ranks: tuple[int, ...]
    """Those that were simulated."""
    schedule: Schedule
    timeline: Timeline
    figures: tuple[RankFigures, ...]
    """Of the ranks that were simulated."""
    shape: PipelineShape | None = None
    """The pipeline, where the batch is cut or there are stages."""
    batch_symbols: tuple[str, ...] = ()
    """Symbols of the model that are its batch, which the pipeline cuts."""
    training: TrainingProgram | None = None
    """The step of one micro-batch that ``program`` is made of, where one was asked for."""
    lanes: int = 1
    """Streams on which a rank's micro-batches compute, where they go side by side."""
    tried: tuple[TriedWay, ...] = ()
    """How the batch might have gone through the cards, where that was looked at."""
    whole: ParallelProgram | None = None
    """The program of the whole batch, where it was cut for the sake of time alone."""
    one: ParallelProgram | None = None
    """The program of one micro-batch, by whose names ops are found."""
    control: Control | None = None
    """What the user decided about streams and times."""
    costs: LocalTarget | None = None
    """What ops cost, where the user said so."""
    uncut: str = ""
    """Why the batch stayed whole, where it could not be cut."""

    @property
    def model(self) -> Graph:
        """The whole model, bound to one micro-batch; what a rank runs where it is not known."""
        return self.parts[0].graph if self.control is None else self.control.whole

    @property
    def measured(self) -> MeasuredShare | None:
        """What goes by measured times, where the user gave some."""
        return None if self.costs is None else self.costs.measured

    @property
    def folded(self) -> bool:
        """Whether one rank of each kind stands for all."""
        return len(self.ranks) < self.program.mesh.size

    def volume(self, rank: int) -> dict[str, float]:
        """Bytes that the rank sends, by axes of the mesh."""
        return volume_by_axes(self.parts[self.program.template_of[rank]].graph)


def schedule_cards(
    program: ParallelProgram,
    cluster: Cluster,
    shape: PipelineShape | None = None,
    *,
    streams: int | None = None,
    memory: bool = True,
    fold: bool | None = None,
    lanes: int = 1,
    control: Control | None = None,
    costs: LocalTarget | None = None,
    diagnostics: Diagnostics | None = None,
) -> CardsResult:
    """Schedules a program, of one micro-batch where ``shape`` says how many there are.

    ``lanes``: on how many streams micro-batches that go side by side compute.
    ``fold``: whether one rank of each template stands for all; by default where all are too
    many. ``control``: what the user decided about streams and times, of which ``diagnostics``
    learns what is to be said; ``costs``: only what is said of times. ScheduleError for what the
    device cannot hold, UsageError for too few streams and for what the user got wrong.
    """
    least = least_streams(program)
    if control is not None and control.on_one_stream:
        streams = 1
    if streams is not None and streams < least:
        raise UsageError(
            f"keys that go round need {least} streams a card, found {streams}",
            where="option 'num_streams'",
            hint="more streams, or --sequence-exchange gather",
        )
    one = program
    if control is not None:
        costs = control.costs(one, cluster, shape)
    if shape is not None:
        program = unroll(program, shape, durations(program, shape, cluster, costs))
    cluster = replace(cluster, mesh=program.mesh)
    if control is not None and control.places:
        told = diagnostics or Diagnostics()
        parts = control.schedule(one, program, cluster, shape, costs, least, told)
    else:
        lane = None if shape is None or lanes < 2 else _lane(shape, lanes)
        parts = tuple(
            schedule_template(
                t.graph, at_rank(cluster, rank, costs), streams=streams, memory=memory, lane=lane
            )
            for t, rank in zip(program.templates, by_template(program), strict=True)
        )
    tasks = sum(len(parts[t].tasks) for t in program.template_of)
    folded = tasks > MOST_TASKS if fold is None else fold
    ranks = representatives(program) if folded else tuple(range(program.mesh.size))
    asked = Demands(cluster, program, ranks)
    schedule = replace(merge(program, parts, ranks, asked), links=cluster.links())
    timeline = _simulated(schedule, cluster, placed=control is not None and control.places)
    figures = rank_figures(schedule, timeline, cluster.task_gap_us + cluster.event_us)
    return CardsResult(
        program, cluster, parts, ranks, schedule, timeline, figures, shape,
        lanes=lanes, one=one, control=control, costs=costs,
    )  # fmt: skip


def _simulated(schedule: Schedule, cluster: Cluster, *, placed: bool) -> Timeline:
    """The timeline of all ranks; UsageError where the user's placement lets cards wait for ever."""
    if not placed:
        return cluster.simulator()(schedule)
    findings = [f for f in verify_schedule(schedule) if f.category == "deadlock"]
    if findings:
        raise UsageError(
            f"placed like this, cards wait for each other for ever: {findings[0].message}",
            where=schedule.model,
            hint="leave collectives (AllReduce, Send, Recv and so on) where they are by default, "
            "or give them streams of their own",
        )
    return cluster.simulator()(schedule)


def _lane(shape: PipelineShape, lanes: int) -> Callable[[str], int]:
    return lambda name: own_name(name, shape).micro_batch % lanes


def least_streams(program: ParallelProgram) -> int:
    """With how many streams no card waits for ever.

    Cards that all send to the next one, and then receive, wait for each other on one stream:
    where transfers go round, each kind of talk needs a stream beside that of computing.
    """
    least = 1
    for template in program.templates:
        ends: dict[object, set[str]] = {}
        kinds: set[object] = set()
        for op in template.graph.ops:
            if not is_collective_op(op):
                continue
            point = op.op_type in POINT_TO_POINT
            kinds.add(op.op_type if point else op.attr("communicator"))
            if point and op.attr("communicator") != "pp":
                ends.setdefault(op.attr("tag"), set()).add(op.op_type)
        if any(len(found) > 1 for found in ends.values()):
            least = max(least, len(kinds) + 1)
    return least


def durations(
    program: ParallelProgram,
    shape: PipelineShape,
    cluster: Cluster,
    costs: LocalTarget | None = None,
) -> Duration:
    """How long each stage takes for a step: the sum of its tasks, each alone.

    ``program`` has a place for each piece of the model along ``pp``, ``cluster`` one for a stage.
    """
    found: dict[tuple[int, str], float] = {}
    for rank in range(program.mesh.size):
        place = program.mesh.coordinates(rank)
        piece = place.get("pp", 0)
        if (piece, "forward") in found:
            continue
        found[piece, "forward"] = found[piece, "backward"] = 0.0
        graph = program.template(rank).graph
        rank_ = cluster.mesh.rank({**place, "pp": piece % shape.stages})
        own = at_rank(cluster, rank_, costs)
        for op in graph.ops:
            part = part_of(op)
            if part != "once" and not crosses(op):
                found[piece, part] += own.alone_us(own.demand(graph, op))

    def duration(stage: int, step: Step) -> float:
        return found[step.chunk * shape.stages + stage, step.phase]

    return duration
