"""What the user decided about streams, on several cards: each template placed by it.

Assignments, sync points and a strategy of one's own speak of the ops of the whole model; options
and measured times hold for each card. `Control.of` gathers them, `Control.schedule` makes the
schedules of all templates. Without any, computing is on one stream and collectives apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gecompiler.cards.local_target import LocalTarget, at_rank
from gecompiler.cards.own_ops import OwnOps, nowhere_together
from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import UsageError
from gecompiler.passes.rank_schedules import by_template
from gecompiler.passes.rank_schedules.controlled import ControlledSchedule, schedule_controlled
from gecompiler.passes.scheduling.schedule_records import ScheduleOptions, UserControl
from gecompiler.passes.streams.custom import check_stream, run_custom
from gecompiler.passes.user_marks import Marks, place_marks, refuse_unmatched

if TYPE_CHECKING:
    from gecompiler.backends.cluster import Cluster
    from gecompiler.driver import Source
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.parallel import ParallelProgram
    from gecompiler.passes.pipeline_parallel import PipelineShape
    from gecompiler.passes.rank_schedules import TemplateSchedule
    from gecompiler.passes.streams.sync_points import SyncPoint
    from gecompiler.request import Request

PIPELINE = "pipeline"
KINDS = ("labels", "priorities", "cores")
"""Of marks."""

OF_ONE_CARD = ("out-of-memory", "slower-than-single", "pseudo-parallel", "streams-unused")
"""Warnings that compare what one card runs alone, and what is said of all cards elsewhere."""

IF_EVERYWHERE = ("redundant-sync-point", "assignment-without-effect")
"""Warnings that hold where every template has them."""


@dataclass(frozen=True)
class Control:
    """What there is to obey, for one program of one micro-batch."""

    whole: Graph
    options: ScheduleOptions
    user: UserControl
    values: Mapping[str, Any] = field(default_factory=dict)
    """The options of measured times and of attention's blocks."""
    marks: Marks = field(default_factory=Marks)
    """By names that the model itself does not have: of collectives."""
    _costs: dict[int, tuple[ParallelProgram, LocalTarget | None]] = field(default_factory=dict)
    """By program, since captures are read but once."""

    @property
    def on_one_stream(self) -> bool:
        """Whether all is on one stream, collectives too."""
        return self.options.strategy == "single" or not self.options.enable_parallel

    @property
    def places(self) -> bool:
        """Whether streams or orders are asked for, and not only times."""
        options, user, plain = self.options, self.user, ScheduleOptions()
        return (
            options.strategy not in (plain.strategy, PIPELINE)
            or not options.enable_parallel
            or options.sync_primitive != plain.sync_primitive
            or options.merge_waits
            or bool(user.assignment or user.sync_points)
            or user.strategy is not None
            or bool(self.marks.labels or self.marks.priorities)
            or any(op.info.label or op.info.priority for op in self.whole.ops)
        )

    def marked(self, program: ParallelProgram) -> ParallelProgram:
        """The program with marks that only its templates have ops for; UsageError if none has."""
        if self.marks:
            left = self.marks
            for template in program.templates:
                missed = place_marks(template.graph, self.marks)
                left = Marks(*(_both(getattr(left, n), getattr(missed, n)) for n in KINDS))
            refuse_unmatched(self.whole, left)
        return program

    def _refuse_pipeline(self) -> None:
        if self.options.strategy == PIPELINE:
            raise UsageError(
                "on several cards 'pipeline' cuts the batch and places ops itself: it does not go "
                "with assignments, labels, priorities, sync points and strategies of your own",
                where="option 'stream_strategy'",
                hint="choose another strategy; --micro-batches N cuts the batch",
            )

    def costs(
        self, program: ParallelProgram, cluster: Cluster, shape: PipelineShape | None
    ) -> LocalTarget | None:
        """What ops of one micro-batch cost, where the user says so. UsageError for no capture."""
        known = self._costs.get(id(program))
        if known is None:
            graphs = [t.graph for t in program.templates]
            found = LocalTarget.of(graphs, cluster, None, self.values)
            known = self._costs[id(program)] = (program, found)
        costs = known[1]
        return None if costs is None else replace(costs, cluster=cluster, shape=shape)

    def schedule(
        self,
        program: ParallelProgram,
        unrolled: ParallelProgram,
        cluster: Cluster,
        shape: PipelineShape | None,
        costs: LocalTarget | None,
        least_streams: int,
        diagnostics: Diagnostics,
    ) -> tuple[TemplateSchedule, ...]:
        """The schedules of all templates of ``unrolled``, which is ``program`` by the shape.

        UsageError for what the user got wrong, ScheduleError for what the device cannot hold.
        """
        self._refuse_pipeline()
        ops = OwnOps(self.whole, program, shape)
        points = self._points(ops, unrolled)
        streams = self._streams(ops, program, cluster)
        evaluator = cluster.simulator()
        parts: list[ControlledSchedule] = []
        told: list[Diagnostics] = []
        for number, rank in enumerate(by_template(unrolled)):
            graph = unrolled.templates[number].graph
            target = at_rank(cluster, rank, costs)
            own = streams[number if shape is None else 0]
            user = UserControl(
                ops.assigned(graph, own),
                points[number],
                parts_of=ops.parts_of(graph),
            )
            told.append(Diagnostics())
            parts.append(
                schedule_controlled(
                    graph, target, evaluator, self.options, user, told[-1], least_streams
                )
            )
        self._tell(told, [bool(row) for row in points], diagnostics)
        return tuple(parts)

    # ------------------------------------------------------------ what is asked for

    def _points(self, ops: OwnOps, program: ParallelProgram) -> list[list[SyncPoint]]:
        """The sync points of each template: those both of whose ends it has."""
        found: list[list[SyncPoint]] = [[] for _ in program.templates]
        for point in self.user.sync_points:
            here = [
                row
                for row, template in zip(found, program.templates, strict=True)
                if ops.holds(template.graph, point.producer)
                and ops.holds(template.graph, point.consumer)
            ]
            if not here:
                raise nowhere_together(point.producer, point.consumer)
            for row in here:
                row.append(point)
        return found

    def _streams(
        self, ops: OwnOps, program: ParallelProgram, cluster: Cluster
    ) -> list[dict[str, int]]:
        """The user's streams by op of the model: by template, or, in micro-batches, for all.

        What is said by name wins over a strategy, which sees what a card runs of one micro-batch.
        """
        for name, stream in self.user.assignment.items():
            check_stream(stream, cluster, f"stream assignment {name!r}")
        by_name = ops.streams(self.user.assignment)
        strategy, seconds = self.user.strategy, self.user.strategy_seconds
        own: list[dict[str, int]] = [{} for _ in program.templates]
        if strategy is not None and self.options.enable_parallel:
            own = [
                run_custom(strategy, t.graph, cluster.at(rank), seconds)
                for t, rank in zip(program.templates, self._seen_by(program, cluster), strict=True)
            ]
        if ops.shape is not None:
            joined: dict[str, int] = {}
            for row in own:
                joined = {**row, **joined}
            own = [joined]
        return [{**row, **by_name} for row in own]

    @staticmethod
    def _seen_by(program: ParallelProgram, cluster: Cluster) -> list[int]:
        """A rank of the cards for each template, whose pieces along ``pp`` may be more."""
        mesh, stages = cluster.mesh, cluster.mesh.axis_size("pp")
        places = [program.mesh.coordinates(rank) for rank in by_template(program)]
        return [mesh.rank({**p, "pp": p["pp"] % stages} if "pp" in p else p) for p in places]

    # ------------------------------------------------------------ what is said of it

    @staticmethod
    def _tell(
        told: Sequence[Diagnostics], with_points: Sequence[bool], diagnostics: Diagnostics
    ) -> None:
        """Each warning once; one of a template's own only where it holds of all."""
        count: dict[tuple[str, str, str], int] = {}
        for row in told:
            for key in dict.fromkeys((w.code, w.message, w.hint) for w in row):
                count[key] = count.get(key, 0) + 1
        for key, times in count.items():
            every = sum(with_points) if key[0] == "redundant-sync-point" else len(told)
            if key[0] not in OF_ONE_CARD and (key[0] not in IF_EVERYWHERE or times == every):
                diagnostics.warn(*key)


def _both(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name in two}


def control_of(source: Source, graph: Graph, request: Request, *, training: bool) -> Control:
    """What a request asks for; ``graph`` is the model bound to one micro-batch."""
    from gecompiler.schedule_request import chosen_strategy, schedule_options, user_control

    values = request.options.as_dict()
    strategy, own = chosen_strategy(values["stream_strategy"], request.controls.strategy)
    options = schedule_options(source.graph, values, strategy, training=training)
    user, marks = user_control(request, own), source.marks_left or Marks()
    return Control(graph, options, user, values, marks)
