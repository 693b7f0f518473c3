"""The tensors of tasks: which have memory, of what size, of what kind, in which other's place."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from gecompiler.ir.errors import UnknownSizeError
from gecompiler.ir.graph import Graph
from gecompiler.ir.schedule import BufferKind, Task
from gecompiler.ir.types import OpaqueType, TensorType
from gecompiler.passes.scheduling.task_graph import TensorSpec


def static_bytes(graph: Graph, value: str) -> int:
    """The packed size of a value; 0 for sequences and the like, which live outside the arena."""
    found = graph.type(value)
    if isinstance(found, OpaqueType):
        return 0
    if isinstance(found, TensorType) and found.is_static:
        return found.bytes
    maker = graph.producer(value)
    raise UnknownSizeError(
        f"the size of {value!r} is not known: {found if found is not None else 'no type'}",
        where=f"op {maker.name!r} ({maker.kind})" if maker is not None else graph.name,
        hint="bind the symbols with --input-shape, --batch or --seq",
    )


@dataclass(frozen=True)
class Places:
    """What is known of the memory of values."""

    root: Callable[[str], str]
    """What a view looks at in the end; a value itself where it is none."""
    made: Container[str]
    """Roots that a task makes."""
    part_of: Mapping[str, tuple[str, int]]
    """Parts that are made in the place of a whole, at so many bytes."""


def tensor_specs(graph: Graph, tasks: Sequence[Task], places: Places) -> dict[str, TensorSpec]:
    """All tensors that have memory: inputs and outputs, and what tasks read or write."""
    names = [*graph.inputs, *(v for t in tasks for v in (*t.reads, *t.writes)), *graph.outputs]
    kinds = _kinds(graph, dict.fromkeys(names), places)
    found: dict[str, TensorSpec] = {}
    for value in dict.fromkeys(v for name in names for v in (places.root(name), name)):
        root = places.root(value)
        kind = kinds.get(root, "activation")
        alias = root if root != value else None
        type_ = graph.tensor(value)
        bits = type_.dtype.bits if type_ is not None else 0
        size, part = static_bytes(graph, value), places.part_of.get(value)
        found[value] = TensorSpec(size, kind, alias, bits, part)
    return found


def _kinds(graph: Graph, values: Mapping[str, None], places: Places) -> dict[str, BufferKind]:
    """By root; what is not there is an activation."""
    states, outputs = {s.output for s in graph.states}, set(graph.outputs)
    kinds: dict[str, BufferKind] = dict.fromkeys(graph.inputs, "input")
    kinds.update((s.input, "state") for s in graph.states)
    for value in values:
        root = places.root(value)
        if value in states:
            kinds[root] = "state"
        elif value in outputs and root in places.made:
            kinds.setdefault(root, "output")
        elif graph.constant(root) is not None:
            kinds[root] = "weight"
    return kinds
