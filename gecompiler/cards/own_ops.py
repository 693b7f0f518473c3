"""The names that users give ops, found in what the cards run.

Names are those of the whole model. An op keeps its name on every card; what is made in its place,
and what brings its inputs, goes with it. Collectives that cards talk by are nobody's: they are
found by their own names and types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gecompiler.cards.names import own_name
from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import ParallelProgram
from gecompiler.passes.pipeline_parallel import PipelineShape
from gecompiler.passes.streams.naming import NameTable, find_in, resolve_in


@dataclass(frozen=True)
class OwnOps:
    """Finds ops of ``program``, which is one micro-batch's, in what becomes of it."""

    whole: Graph
    program: ParallelProgram
    shape: PipelineShape | None = None
    _found: dict[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[NameTable]:
        """The model's names, then those of each template."""
        return [NameTable(g) for g in (self.whole, *(t.graph for t in self.program.templates))]

    def find(self, name: str) -> frozenset[str]:
        """The ops that a name stands for, by their names; UsageError where there are none."""
        if name not in self._found:
            ops = [op for _, row in find_in(self.tables, name) for op in row]
            self._found[name] = frozenset(op.name for op in ops)
        return self._found[name]

    def streams(self, assignment: Mapping[str, int]) -> dict[str, int]:
        """Streams by op, the more exact and the later name winning."""
        return resolve_in(self.tables, assignment)

    def assigned(self, graph: Graph, streams: Mapping[str, int]) -> dict[str, int]:
        """The streams of the ops of a template, micro-batches and all."""
        found: dict[str, int] = {}
        for op in graph.ops:
            stream = next((streams[n] for n in self.names(op) if n in streams), None)
            if stream is not None:
                found[op.name] = stream
        return found

    def names(self, op: Op) -> tuple[str, ...]:
        """What an op of a template is called in the model: its own name, what it was made for."""
        own = own_name(op.name, self.shape).name
        maker = self.program.made_for.get(own)
        return (own,) if maker is None or is_collective_op(op) else (own, maker)

    def parts_of(self, graph: Graph) -> Callable[[str], list[list[str]]]:
        """Finds the ops of a template by name in each micro-batch, what all share included."""
        count = 1 if self.shape is None else self.shape.micro_batches
        number = {op.name: self._micro_batch(op.name) for op in graph.ops}

        def find(name: str) -> list[list[str]]:
            ops = self._here(graph, self.find(name))
            return [[op for op in ops if number[op] in (None, part)] for part in range(count)]

        return find

    def _micro_batch(self, name: str) -> int | None:
        """Whose an op is, None where it is of all micro-batches."""
        own = own_name(name, self.shape)
        return None if own.name == name else own.micro_batch

    def _here(self, graph: Graph, ops: frozenset[str]) -> list[str]:
        return [op.name for op in graph.ops if not ops.isdisjoint(self.names(op))]

    def holds(self, graph: Graph, name: str) -> bool:
        """Whether a template has an op that the name stands for; UsageError where none has."""
        return bool(self._here(graph, self.find(name)))


def nowhere_together(producer: str, consumer: str) -> UsageError:
    """The error for a sync point whose ends are on different cards."""
    return UsageError(
        "no card has both: sync points hold within a card",
        where=f'add_sync_point("{producer}", "{consumer}")',
        hint="stages of a pipeline wait for what they are sent; leave the point out",
    )
