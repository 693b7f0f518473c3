"""A pipeline in outline: each step simulated once, the micro-batches put together of steps.

What differs from the simulation of all micro-batches is that steps do not overlap on a card, and
that transfers contend with nothing. It takes the time of one micro-batch instead of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, cast

from gecompiler.backends.cluster import Cluster
from gecompiler.cards.demands import Demands
from gecompiler.cards.schedule import CardsResult
from gecompiler.ir.collective_ops import SEND, message_bytes
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.ir.schedule import Demand
from gecompiler.ir.target import Target
from gecompiler.ir.timeline import Span
from gecompiler.passes.pipeline_parallel import PipelineShape, Step, sequence
from gecompiler.passes.pipeline_parallel.chunk import Chunk, crosses
from gecompiler.passes.pipeline_parallel.phases import Part, part_of
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

PARTS: tuple[Part, ...] = ("forward", "backward", "once")
"""In the order in which a rank comes to them."""


@dataclass(frozen=True)
class Piece:
    """One piece of the model, simulated for one micro-batch; its ranks are of one stage."""

    result: CardsResult
    figures: RankFigures
    """Of its busiest rank, in one micro-batch."""
    steps: RankFigures
    """Of that, in its forward and backward alone: without what is done once."""
    template: int
    """What that rank runs."""
    spans_us: dict[Part, float]
    """How long its forward, its backward, and what is done once take."""
    transfer_us: dict[Part, float]
    """How long what it makes is on its way."""
    adding_us: float = 0.0
    """What a micro-batch takes to add its gradients to those of the ones before."""

    def sent_bytes(self, micro_batches: int) -> dict[str, float]:
        """What its busiest rank sends in all, by axes: gradients once, the rest each time."""
        graph = self.result.parts[self.template].graph
        return volume_by_axes(graph, lambda op: 1 if part_of(op) == "once" else micro_batches)


@dataclass(frozen=True)
class Outline:
    """What the pipeline comes to. Times in us, of all micro-batches."""

    time_us: float
    figures: tuple[RankFigures, ...]
    """By stage."""
    pieces: tuple[Piece, ...]

    @property
    def busiest(self) -> int:
        """The stage with the least idle time."""
        return min(range(len(self.figures)), key=lambda stage: self.figures[stage].idle_us)


def outline(program: ParallelProgram, shape: PipelineShape, cluster: Cluster) -> Outline:
    """Simulates each piece once; ``cluster`` has the mesh of the stages."""
    pieces: list[Piece] = []
    for chunk in range(shape.chunks):
        pieces += _pieces(_chunk(program, shape, chunk, cluster.mesh), cluster)

    def duration(stage: int, step: Step) -> float:
        piece = pieces[step.chunk * shape.stages + stage]
        adds = step.phase == "backward" and step.micro_batch > 0
        return piece.spans_us[step.phase] + (piece.adding_us if adds else 0.0)

    def delay(stage: int, step: Step) -> float:
        return pieces[step.chunk * shape.stages + stage].transfer_us[step.phase]

    once = max(
        sum(piece.spans_us["once"] for piece in pieces[stage :: shape.stages])
        for stage in range(shape.stages)
    )
    time_us = max(p.end for p in sequence(shape, duration, delay)) + once
    free = max(p.end for p in sequence(shape, duration)) + once
    figures = tuple(
        _stage(pieces, stage, shape, time_us, time_us - free) for stage in range(shape.stages)
    )
    return Outline(time_us, figures, tuple(pieces))


def _chunk(
    program: ParallelProgram, shape: PipelineShape, chunk: int, mesh: Mesh
) -> ParallelProgram:
    """The pieces that are that chunk of their stage, as a program for the cards."""
    found = []
    for rank in range(mesh.size):
        place = mesh.coordinates(rank)
        piece = chunk * shape.stages + place.get("pp", 0)
        found.append(program.template_of[program.mesh.rank({**place, "pp": piece})])
    used = sorted(set(found))
    templates = tuple(program.templates[number] for number in used)
    return ParallelProgram(mesh, templates, tuple(used.index(number) for number in found))


def _stage(
    pieces: Sequence[Piece], stage: int, shape: PipelineShape, time_us: float, moving_us: float
) -> RankFigures:
    """A stage's figures: of the steps once a micro-batch, of the rest once; what is left is idle.

    Of that, ``moving_us`` is for transfers: it would not be there if they took no time.
    """
    own = pieces[stage :: shape.stages]
    count = shape.micro_batches

    def total(figure: Callable[[RankFigures], float]) -> float:
        return sum(count * figure(p.steps) + max(0.0, figure(p.figures) - figure(p.steps))
                   for p in own)  # fmt: skip

    adding = (count - 1) * sum(p.adding_us for p in own)
    compute, exposed = total(attrgetter("compute_us")) + adding, total(attrgetter("exposed_us"))
    busy = adding + sum(
        count * (p.spans_us["forward"] + p.spans_us["backward"]) + p.spans_us["once"] for p in own
    )
    idle = max(0.0, time_us - min(busy, compute + exposed))
    shown = min(idle, moving_us)
    idle, exposed = idle - shown, exposed + shown
    names = dict.fromkeys(axes for p in own for axes in p.figures.exposed_by)
    by = {axes: total(lambda f, axes=axes: f.exposed_by.get(axes, 0.0)) for axes in names}  # type: ignore[misc]
    if shown > 0:
        by["pp"] = by.get("pp", 0.0) + shown
    talk = total(attrgetter("communication_us"))
    return RankFigures(own[0].figures.rank, compute, talk, exposed, idle, by)


def _pieces(program: ParallelProgram, cluster: Cluster) -> list[Piece]:
    ranks = representatives(program)
    parts = tuple(
        schedule_template(t.graph, cast("Target", _Within(cluster.at(rank))))
        for t, rank in zip(program.templates, by_template(program), strict=True)
    )
    by_stage: dict[int, list[int]] = {}
    for rank in ranks:
        by_stage.setdefault(program.mesh.coordinates(rank).get("pp", 0), []).append(rank)
    asked = Demands(cluster, program, ranks)
    return [_piece(program, parts, sorted(by_stage[stage]), asked) for stage in sorted(by_stage)]


class _Within:
    """A rank's target for which transfers between stages ask nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def demand(self, graph: Graph, op: Op) -> Demand:
        """The demand of all else."""
        return Demand() if crosses(op) else self._cluster.demand(graph, op)


def _piece(
    program: ParallelProgram,
    parts: tuple[TemplateSchedule, ...],
    ranks: Sequence[int],
    asked: Demands,
) -> Piece:
    def demand(graph: Graph, op: Op, rank: int) -> Demand:
        return Demand() if crosses(op) else asked(graph, op, rank)

    cluster = asked.cluster
    schedule = merge(program, parts, ranks, demand)
    timeline = cluster.simulator()(schedule)
    gap_us = cluster.task_gap_us + cluster.event_us
    figures = rank_figures(schedule, timeline, gap_us)
    result = CardsResult(program, cluster, parts, tuple(ranks), schedule, timeline, figures)
    graphs = {rank: parts[program.template_of[rank]].graph for rank in ranks}
    ends: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
    stepping: list[Span] = []
    for span in timeline.spans:
        task = schedule.tasks[span.task]
        op = graphs[task.rank].op(task.ops[0])
        part = part_of(op)
        if not crosses(op):
            ends[part] = max(ends[part], span.end_ns / 1000)
        if part != "once":
            stepping.append(span)
    spans: dict[Part, float] = {}
    last = 0.0
    for part in PARTS:
        spans[part] = max(0.0, ends[part] - last)
        last = max(last, ends[part])
    nothing = RankFigures(ranks[0], 0.0, 0.0, 0.0, 0.0)
    busiest = max(figures, key=lambda f: (f.compute_us + f.exposed_us, -f.rank), default=nothing)
    number = program.template_of[busiest.rank]
    steps = busiest
    if len(stepping) < len(timeline.spans):
        of_steps = rank_figures(schedule, replace(timeline, spans=tuple(stepping)), gap_us)
        steps = next((f for f in of_steps if f.rank == busiest.rank), nothing)
    moving = _transfers(graphs[ranks[0]], cluster, ranks[0])
    adding = _adding(program.templates[number], cluster.at(busiest.rank))
    return Piece(result, busiest, steps, number, spans, moving, adding)


def _adding(template: Template, target: Cluster) -> float:
    """The time of the sums of gradients, each alone: one for each value that is summed."""
    graph, summed = template.graph, Chunk.of(template, 0, "").summed
    sums = Graph("sums", graph.opsets)
    total = 0.0
    for value in summed:
        made = graph.tensor(value)
        if made is None or not made.is_static:
            continue
        given = [sums.add_input(sums.fresh(f"{value}/{side}"), made) for side in ("sum", "new")]
        op = Op(sums.fresh(f"{value}/add"), "Add", tuple(given), (sums.fresh(value),))
        sums.add_op(op, [made])
        total += target.alone_us(target.demand(sums, op)) + target.task_gap_us
    return total


def _transfers(graph: Graph, cluster: Cluster, rank: int) -> dict[Part, float]:
    """How long what the piece makes is on its way to another stage, by phase."""
    found: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
    group = cluster.mesh.group("pp", rank)
    for op in graph.ops:
        if crosses(op) and op.op_type == SEND:
            other = group[(group.index(rank) + int(op.attr("peer", 1))) % len(group)]
            if other != rank:
                cost = cluster.collective(SEND, (rank, other), float(message_bytes(graph, op)))
                found[part_of(op)] += cost.us
    return found
