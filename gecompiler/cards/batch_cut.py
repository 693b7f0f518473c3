"""Whether the batch of a model may be cut without being asked for, and the model of a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gecompiler.cards.run import batch_axis
from gecompiler.ir.bind.roles import batch_symbols
from gecompiler.ir.dims import substitute
from gecompiler.ir.types import TensorType
from gecompiler.passes.micro_batches.batch_site import MixedSamplesError
from gecompiler.passes.micro_batches.micro_batch import batch_axes

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph
    from gecompiler.request import Request

Bind = Callable[[dict[str, int]], "Graph"]
"""The model bound to sizes, optimised."""

BATCH_OF_ONE = "the batch is 1"
"""A refusal that a larger batch would lift."""


@dataclass(frozen=True)
class BatchCut:
    """A model whose batch could go through the cards in parts."""

    graph: Graph
    """With its symbols."""
    sizes: Mapping[str, int]
    """Of the whole batch."""
    bind: Bind
    barred: str = ""
    """Why it is not cut, where something else than the model stands against it."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """Those that are the batch."""
        return tuple(name for name in batch_symbols(self.graph) if name in self.sizes)

    @property
    def batch(self) -> int:
        """Its size; 1 where the model has none."""
        return self.sizes[self.symbols[0]] if self.symbols else 1

    def part(self, count: int) -> Graph:
        """The model bound to one of ``count`` equal parts."""
        return self.bind({**self.sizes, **{n: self.sizes[n] // count for n in self.symbols}})

    def refusal(self, whole: Graph) -> str:
        """Why the batch is not cut, empty where it may be: its samples are proven apart.

        ``whole`` is the model bound to the whole batch.
        """
        if self.barred:
            return self.barred
        if not self.symbols:
            return "the model has no batch that could be cut"
        if self.batch < 2:
            return BATCH_OF_ONE
        place = {v: self._axis(v) for v in (*whole.inputs, *whole.outputs)}
        samples = tuple(v for v in whole.inputs if place[v] == 0)
        if not samples or any(place[v] not in (None, 0) for v in whole.inputs):
            return "the batch is not the first axis of every input that has it"
        try:
            axes = batch_axes(whole, samples)
        except MixedSamplesError as error:
            return str(error)
        other = next((v for v in whole.outputs if axes.get(v) != place[v]), None)
        return "" if other is None else f"output {other!r} does not follow the batch"

    def _axis(self, value: str) -> int | None:
        return batch_axis(self.graph, value, self.sizes, self.symbols)


def not_joined(graph: Graph, sizes: Mapping[str, int], parts: int) -> str:
    """Why the outputs of so many parts of the batch do not make those of the whole; empty if so.

    ``graph`` has its symbols, ``sizes`` are of the whole batch. An output has the batch in one
    axis, or depends on no sample: one that compares all samples with all others cannot be joined.
    """
    symbols = tuple(name for name in batch_symbols(graph) if name in sizes)
    part = {**sizes, **{name: sizes[name] // parts for name in symbols}}
    for value in graph.outputs:
        type_ = graph.type(value)
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        rows = [(substitute(dim, sizes), substitute(dim, part)) for dim in type_.shape]
        grown = [row for row in rows if row[0] != row[1]]
        if len(grown) > 1:
            return f"output {value!r} has the batch in {len(grown)} axes"
        if not grown and _reads_samples(graph, value, sizes, symbols):
            return f"output {value!r} is of the whole batch"
    return ""


def _reads_samples(
    graph: Graph, value: str, sizes: Mapping[str, int], symbols: tuple[str, ...]
) -> bool:
    """Whether it is computed from what samples hold, and not from their number alone."""
    inputs, seen, left = set(graph.inputs), {value}, [value]
    while left:
        name = left.pop()
        if name in inputs and batch_axis(graph, name, sizes, symbols) is not None:
            return True
        maker = graph.producer(name)
        if maker is not None and maker.op_type not in ("Shape", "Size"):
            new = [v for v in graph.reads(maker) if v and v not in seen]
            seen.update(new)
            left += new
    return False


def batch_barred(request: Request, *, training: bool) -> str:
    """What stands against cutting the batch of a request, empty where nothing does."""
    controls = request.controls
    if training:
        return "a training step is cut where micro_batches says so"
    if controls.assignment or controls.sync_points or controls.strategy is not None:
        return "ops are placed by the user"
    return "sizes are seen in a run of the whole batch" if request.observe else ""
