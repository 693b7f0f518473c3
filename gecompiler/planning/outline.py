"""A pipeline in outline: each step simulated once, the micro-batches put together of steps.

What differs from the simulation of all micro-batches is that steps do not overlap on a card, and
that transfers contend with nothing. It takes the time of one micro-batch instead of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from gecompiler.backends.cluster import Cluster
from gecompiler.cards.demands import Demands
from gecompiler.cards.schedule import CardsResult
from gecompiler.ir.collective_ops import SEND, message_bytes
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Mesh, ParallelProgram
from gecompiler.ir.schedule import Demand
from gecompiler.ir.target import Target
from gecompiler.passes.pipeline_parallel import PipelineShape, Step, sequence
from gecompiler.passes.pipeline_parallel.chunk import crosses
from gecompiler.passes.pipeline_parallel.phases import Part, part_of
from gecompiler.passes.rank_schedules import (
    RankFigures,
    TemplateSchedule,
    by_template,
    merge,
    rank_figures,
    schedule_template,
)

PARTS: tuple[Part, ...] = ("forward", "backward", "once")
"""In the order in which a rank comes to them."""


@dataclass(frozen=True)
class Piece:
    """One piece of the model, simulated for one micro-batch; its ranks are of one stage."""

    result: CardsResult
    figures: RankFigures
    """Of its busiest rank."""
    template: int
    """What that rank runs."""
    spans_us: dict[Part, float]
    """How long its forward, its backward, and what is done once take."""
    transfer_us: dict[Part, float]
    """How long what it makes is on its way."""


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
        return pieces[step.chunk * shape.stages + stage].spans_us[step.phase]

    def delay(stage: int, step: Step) -> float:
        return pieces[step.chunk * shape.stages + stage].transfer_us[step.phase]

    once = max(piece.spans_us["once"] for piece in pieces)
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
    """A stage's figures: those of its pieces, once a micro-batch; what is left is idle.

    Of that, ``moving_us`` is for transfers: it would not be there if they took no time.
    """
    own = pieces[stage :: shape.stages]
    count = shape.micro_batches
    compute = count * sum(p.figures.compute_us for p in own)
    exposed = count * sum(p.figures.exposed_us for p in own)
    busy = count * sum(p.spans_us["forward"] + p.spans_us["backward"] for p in own)
    idle = max(0.0, time_us - min(busy, compute + exposed))
    shown = min(idle, moving_us)
    idle, exposed = idle - shown, exposed + shown
    by: dict[str, float] = {}
    for piece in own:
        for axes, us in piece.figures.exposed_by.items():
            by[axes] = by.get(axes, 0.0) + count * us
    if shown > 0:
        by["pp"] = by.get("pp", 0.0) + shown
    talk = count * sum(p.figures.communication_us for p in own)
    return RankFigures(own[0].figures.rank, compute, talk, exposed, idle, by)


def _pieces(program: ParallelProgram, cluster: Cluster) -> list[Piece]:
    firsts = by_template(program)
    parts = tuple(
        schedule_template(t.graph, cast("Target", _Within(cluster.at(rank))))
        for t, rank in zip(program.templates, firsts, strict=True)
    )
    by_stage: dict[int, list[int]] = {}
    for rank in firsts:
        by_stage.setdefault(program.mesh.coordinates(rank).get("pp", 0), []).append(rank)
    asked = Demands(cluster, program, folded=True)
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
    figures = rank_figures(schedule, timeline, cluster.task_gap_us + cluster.event_us)
    result = CardsResult(program, cluster, parts, tuple(ranks), schedule, timeline, figures)
    graphs = {rank: parts[program.template_of[rank]].graph for rank in ranks}
    ends: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
    for span in timeline.spans:
        task = schedule.tasks[span.task]
        op = graphs[task.rank].op(task.ops[0])
        if not crosses(op):
            ends[part_of(op)] = max(ends[part_of(op)], span.end_ns / 1000)
    spans: dict[Part, float] = {}
    last = 0.0
    for part in PARTS:
        spans[part] = max(0.0, ends[part] - last)
        last = max(last, ends[part])
    nothing = RankFigures(ranks[0], 0.0, 0.0, 0.0, 0.0)
    busiest = max(figures, key=lambda f: (f.compute_us + f.exposed_us, -f.rank), default=nothing)
    number = program.template_of[busiest.rank]
    return Piece(result, busiest, number, spans, _transfers(graphs[ranks[0]], cluster, ranks[0]))


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
