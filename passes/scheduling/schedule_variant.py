"""What may be scheduled for a graph: the graph as it is, or its batch in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.target import Target
from gecompiler.passes.micro_batches.micro_batch import micro_batch
from gecompiler.passes.scheduling.lowering import lower
from gecompiler.passes.scheduling.task_graph import TaskGraph
from gecompiler.passes.streams.collective_streams import Apart, CollectiveStreams, in_order
from gecompiler.passes.streams.strategy import Placement
from gecompiler.passes.streams.sync_points import (
    NO_PARTS,
    PartsOf,
    SyncPoint,
    SyncPoints,
    apply_sync_points,
)
from gecompiler.passes.streams.user_priority import by_priority, priorities_of, with_core_limits


@dataclass(frozen=True)
class Variant:
    """A graph with the user's decisions carried over to its tasks."""

    graph: Graph
    points: SyncPoints
    fixed: Mapping[str, int]
    """The user's streams, by task name."""
    sizes: tuple[int, ...] = ()
    """Samples in each micro-batch."""
    part_of: Mapping[str, int] = field(default_factory=dict)
    """The micro-batch of each op, by name; what all of them share is in none."""
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The op that each micro-batch has of an op that works on samples, by that op's name."""
    priority: Mapping[str, int] = field(default_factory=dict)
    """The user's priorities, by op name, where there are any."""
    collectives: CollectiveStreams | None = None
    """Where collectives go, which the strategy does not place."""

    def settle(self, placement: Placement) -> Placement:
        """A strategy's placement by the user's priorities, its collectives where they go."""
        found = by_priority(placement, self.priority)
        return found if self.collectives is None else self.collectives.settle(found)

    @property
    def tasks(self) -> TaskGraph:
        """The tasks, with the orders that the user demands."""
        return self.points.graph


@dataclass(frozen=True)
class Variants:
    """Makes variants of one graph. Names that users wrote are those of that graph."""

    graph: Graph
    target: Target
    fixed: Mapping[str, int]
    """The user's streams, by op name."""
    points: Sequence[SyncPoint]
    diagnostics: Diagnostics
    samples: Sequence[str] = ()
    """Inputs known to have the batch first."""
    parts_of: PartsOf | None = None
    """How names of sync points find ops, where not by the graph's names."""
    apart: Apart | None = None
    """Where the graph is what one of several cards runs."""
    streams: int = 1
    """How many there are in all, collectives' own among them."""

    @cached_property
    def whole(self) -> Variant:
        """The graph as it is."""
        return self._variant(self.graph)

    @property
    def room(self) -> int:
        """How many streams there are for what the strategy places."""
        apart = self.whole.collectives
        fixed = max(self.fixed.values(), default=-1) + 1
        return self.streams if apart is None else max(apart.room, fixed)

    def in_parts(self, count: int) -> Variant:
        """The graph with its batch in that many parts; MixedSamplesError when that cannot be."""
        split = micro_batch(self.graph, count, self.samples)
        whole = self._variant(split.graph, split.parts)
        return replace(whole, sizes=split.sizes, part_of=split.part_of, parts=split.parts)

    def _variant(self, graph: Graph, parts: Mapping[str, Sequence[str]] = NO_PARTS) -> Variant:
        tasks = with_core_limits(lower(graph, self.target), graph, self.target)
        streams = {
            part: stream for op, stream in self.fixed.items() for part in parts.get(op, (op,))
        }
        named = {t.name: streams[t.name] for t in tasks.tasks if t.name in streams}
        collectives: CollectiveStreams | None = None
        if self.apart is not None:
            cores = self.target.limits.vector_cores
            collectives = CollectiveStreams.of(tasks, self.apart, named, self.streams, cores)
            tasks = in_order(tasks, graph)
        points = apply_sync_points(
            tasks, self.graph, self.points, self.diagnostics, parts, self.parts_of
        )
        priority = priorities_of(graph)
        return Variant(graph, points, named, priority=priority, collectives=collectives)
