"""One Schedule of several ranks, from the schedules of what they run.

Tasks and tensors are named ``rank:name``. Collectives get the communicator of their rank's group
(``tp:4``); a Send and its Recv have one of the two ranks alone (``pp:0/0>4``), under one name
made of their tag, so that each pair meets in the order in which it is posted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gecompiler.ir.collective_ops import POINT_TO_POINT, SEND, channel, signature
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.parallel import Mesh, ParallelProgram
from gecompiler.ir.schedule import (
    Buffer,
    Communicator,
    Control,
    Demand,
    Event,
    PhysicalStream,
    Schedule,
    StateAlias,
    Task,
)
from gecompiler.passes.rank_schedules.template import TemplateSchedule

RankDemand = Callable[[Graph, Op, int], Demand]
"""What a rank's part of a collective asks for, where ranks differ."""


def representatives(program: ParallelProgram) -> tuple[int, ...]:
    """The first rank of each template, and those it passes values round with; ascending.

    Of a pipeline these are next to each other, since ranks that differ along other axes alone
    mostly run the same. What comes round is there when its sender had it and not before, so that
    rings are complete, also of ranks that run the same.
    """
    found = dict.fromkeys(by_template(program))
    axes = [_ring_axes(template.graph) for template in program.templates]
    left = list(found)
    while left:
        rank = left.pop()
        for along in axes[program.template_of[rank]]:
            new = [r for r in program.mesh.group(along, rank) if r not in found]
            found.update(dict.fromkeys(new))
            left += new
    return tuple(sorted(found))


def _ring_axes(graph: Graph) -> tuple[str, ...]:
    """The axes along which values go from rank to rank, other than from stage to stage."""
    sends = [op for op in graph.ops if op.domain == GE_DOMAIN and op.op_type == SEND]
    axes = dict.fromkeys(str(op.attr("communicator", "")) for op in sends)
    return tuple(name for name in axes if name != "pp")


def by_template(program: ParallelProgram) -> tuple[int, ...]:
    """The first rank of each template, in order of the templates."""
    first: dict[int, int] = {}
    for rank, template in enumerate(program.template_of):
        first.setdefault(template, rank)
    return tuple(first[number] for number in range(len(program.templates)))


def merge(
    program: ParallelProgram,
    parts: Sequence[TemplateSchedule],
    ranks: Sequence[int] | None = None,
    demand: RankDemand | None = None,
) -> Schedule:
    """The schedule of those ranks (default: all), ``parts`` by template.

    With some of the ranks only, those left out are held to be where their like are: their parts
    of collectives are waited for by nobody.
    """
    chosen = tuple(range(program.mesh.size)) if ranks is None else tuple(ranks)
    merger = _Merger(program, parts, chosen, demand)
    for rank in chosen:
        merger.add(rank)
    return merger.schedule()


class _Merger:
    def __init__(
        self,
        program: ParallelProgram,
        parts: Sequence[TemplateSchedule],
        ranks: tuple[int, ...],
        demand: RankDemand | None,
    ) -> None:
        self.program = program
        self.parts = parts
        self.ranks = ranks
        self.demand = demand
        self.tasks: list[Task] = []
        self.events: list[Event] = []
        self.buffers: list[Buffer] = []
        self.controls: list[Control] = []
        self.states: list[StateAlias] = []
        self.physical: list[PhysicalStream] = []
        self.communicators: dict[str, tuple[int, ...]] = {}

    def add(self, rank: int) -> None:
        """Adds one rank's part."""
        part = self.parts[self.program.template_of[rank]]
        schedule, base, own = part.schedule, len(self.tasks), f"{rank}:"
        for task in schedule.tasks:
            name, communicator, demand, sign = own + task.name, "", task.demand, task.signature
            if task.kind == "collective":
                op = part.graph.op(task.name)
                name, communicator = self._meeting(op, rank)
                sign = signature(part.graph, op)
                if self.demand is not None:
                    demand = self.demand(part.graph, op, rank)
            self.tasks.append(
                replace(
                    task,
                    id=base + task.id,
                    name=name,
                    rank=rank,
                    reads=tuple([own + v for v in task.reads]),
                    writes=tuple([own + v for v in task.writes]),
                    demand=demand,
                    communicator=communicator,
                    signature=sign,
                )
            )
        self.events += [
            replace(
                e,
                producer=base + e.producer,
                consumer=base + e.consumer,
                tensors=tuple([own + v for v in e.tensors]),
            )
            for e in schedule.events
        ]
        for buffer in schedule.buffers:
            alias = None if buffer.alias_of is None else own + buffer.alias_of
            self.buffers.append(
                replace(buffer, tensor=own + buffer.tensor, alias_of=alias, rank=rank)
            )
        self.controls += [
            replace(c, producer=base + c.producer, consumer=base + c.consumer)
            for c in schedule.controls
        ]
        self.states += [
            replace(s, input=own + s.input, output=own + s.output) for s in schedule.states
        ]
        self.physical += [
            replace(p, id=len(self.physical) + i, rank=rank)
            for i, p in enumerate(schedule.physical_streams)
        ]

    def _meeting(self, op: Op, rank: int) -> tuple[str, str]:
        """The task's name and its communicator, which is declared."""
        mesh, axes = self.program.mesh, str(op.attr("communicator", ""))
        if op.op_type in POINT_TO_POINT:
            source, target = _pair(mesh, op, rank)
            pair: tuple[int, ...] = (source, target)
            name = channel(mesh.communicator(axes, rank), source, target)
            label = f"{rank}:{name} {op.attr('tag', '')}"
        else:
            pair, name, label = mesh.group(axes, rank), mesh.communicator(axes, rank), ""
        present = set(self.ranks)
        self.communicators[name] = tuple(r for r in pair if r in present)
        return label or f"{rank}:{op.name}", name

    def schedule(self) -> Schedule:
        """All that was added."""
        used = sorted({self.program.template_of[rank] for rank in self.ranks})
        schedules = [self.parts[t].schedule for t in used]
        return replace(
            schedules[0],
            tasks=tuple(self.tasks),
            events=tuple(self.events),
            buffers=tuple(self.buffers),
            controls=tuple(self.controls),
            states=tuple(self.states),
            communicators=tuple(Communicator(n, r) for n, r in self.communicators.items()),
            arena_bytes=max(s.arena_bytes for s in schedules),
            physical_streams=tuple(self.physical),
        )


def _pair(mesh: Mesh, op: Op, rank: int) -> tuple[int, int]:
    """Who sends and who receives."""
    group = mesh.group(str(op.attr("communicator", "")), rank)
    other = group[(group.index(rank) + int(op.attr("peer", 1))) % len(group)]
    return (rank, other) if op.op_type == SEND else (other, rank)
