"""Which gradients are sent together: in the order the backward pass completes them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.training_ops import BACKWARD, RECOMPUTE, SYNC, is_optimizer
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.sync_options import Group, SyncOptions


@dataclass(frozen=True)
class Gradient:
    """A parameter's gradient and the step that reads it."""

    parameter: str
    value: str
    type: TensorType
    step: Op

    @property
    def size(self) -> int:
        """How many numbers it has."""
        count = 1
        for dim in self.type.sizes:
            count *= dim
        return count


@dataclass(frozen=True)
class Bucket:
    """Gradients of one element type, reduced over the same ranks and applied alike."""

    number: int
    gradients: tuple[Gradient, ...]
    others: Group | None
    alike: bool = True
    """Whether replicas hold the same of it."""
    late: bool = False
    """Whether it is made of sums over other ranks, which come after all micro-batches."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(g.size for g in self.gradients)

    def chunk(self, ranks: int) -> int:
        """How many numbers of it each of so many ranks has, the last with zeros behind."""
        return -(-self.size // ranks)


Pieces = tuple[tuple[str, tuple[int, ...]], ...]
"""States that lie one after the other, and their sizes."""


@dataclass(frozen=True)
class Synced:
    """The step with its collectives.

    ``initial`` is the state before the first step where it differs from that of the step without:
    whole flat constants, of which each replica is given its part along axis 0. ``pieces`` says,
    by their names, which states lie in one, in order, each with its sizes.
    """

    graph: Graph
    buckets: tuple[Bucket, ...]
    initial: Mapping[str, Constant]
    pieces: Mapping[str, Pieces]


def gradients_of(graph: Graph) -> tuple[Gradient, ...]:
    """The gradients that optimisers read, in the order in which they are made."""
    place = {op.name: i for i, op in enumerate(graph.topological())}
    found: list[tuple[int, Gradient]] = []
    for op in graph.ops:
        kind = graph.tensor(op.inputs[1]) if is_optimizer(op) else None
        if kind is not None:
            maker = graph.producer(op.inputs[1])
            at = -1 if maker is None else place[maker.name]
            found.append((at, Gradient(op.inputs[0], op.inputs[1], kind, op)))
    return tuple(gradient for _, gradient in sorted(found, key=lambda pair: pair[0]))


def buckets_of(graph: Graph, options: SyncOptions) -> tuple[Bucket, ...]:
    """The buckets, by when they are full or their last gradient is made."""
    open_: dict[Hashable, list[Gradient]] = {}
    full: list[list[Gradient]] = []
    for gradient in gradients_of(graph):
        others = options.others.get(gradient.parameter)
        attrs = tuple(sorted(gradient.step.attrs.items(), key=lambda pair: pair[0]))
        alike = gradient.parameter not in options.unlike
        kind, step = gradient.type.dtype, gradient.step
        late = is_late(graph, gradient.value)
        key = (others, alike, late, kind, step.op_type, len(step.inputs), attrs)
        group = open_.setdefault(key, [])
        group.append(gradient)
        if sum(g.type.bytes for g in group) >= options.bucket_bytes:
            full.append(group)
            del open_[key]
    full += open_.values()
    return tuple(
        Bucket(
            number,
            tuple(group),
            options.others.get(group[0].parameter),
            group[0].parameter not in options.unlike,
            is_late(graph, group[0].value),
        )
        for number, group in enumerate(full)
    )


def is_late(graph: Graph, value: str) -> bool:
    """Whether the value is made after all micro-batches, once."""
    maker = graph.producer(value)
    return maker is not None and maker.info.phase == SYNC


def first_uses(
    graph: Graph, buckets: Iterable[Bucket]
) -> dict[str, list[tuple[Bucket, bool, str]]]:
    """By op: the buckets that it is the first to read, and whether in the backward pass.

    With each the op that was first to read the bucket before: none is gathered earlier.
    """
    bucket_of = {g.parameter: b for b in buckets for g in b.gradients}
    found: dict[str, list[tuple[Bucket, bool, str]]] = {}
    seen: set[tuple[int, bool]] = set()
    last = ""
    for op in graph.topological():
        if is_optimizer(op):
            continue
        again = op.info.phase in (RECOMPUTE, BACKWARD)
        for value in op.inputs:
            bucket = bucket_of.get(value)
            if bucket is not None and (bucket.number, again) not in seen:
                seen.add((bucket.number, again))
                found.setdefault(op.name, []).append((bucket, again, last))
        if op.name in found:
            last = op.name
    return found
