"""What an op does with dims: which of its outputs' dims are which of its inputs'.

A rule names the dims of an op by labels, as an einsum does. A label stands for the same
positions wherever it occurs, so a cut of one is a cut of all: MatMul is ``m k, k n -> m n`` with
``k`` summed. A dim may be several labels in row-major order (what Reshape takes apart), or runs
one after the other (what Split and Concat do). From this one description follow both how a cut
spreads over a graph and what an op needs when its inputs are cut.

Source: the sharding rules of Shardy (openxla/shardy, OpShardingRule: factors of dims, reduction
and need-replication factors).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Union

from gecompiler.ir.collective_ops import Reduction
from gecompiler.ir.parallel.layout import (
    Factors,
    Layout,
    Segments,
    Split,
    factors_of,
    local_size,
    product_of,
    segments_of,
)
from gecompiler.ir.parallel.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Runs:
    """A dim that consists of runs, each described by labels."""

    parts: tuple[Spec, ...]


Spec = Union[tuple[str, ...], Runs]
"""A dim: labels in row-major order (none: size 1), or runs."""

Operand = tuple[Spec, ...]
"""The dims of an input or output."""

Linear = Literal["", "sum", "product", "first", "second"]
"""Whether parts of a sum may pass: when all inputs are such (``sum``), one of them
(``product``), the first (``first``) or the second (``second``), or never."""

Adaptation = Literal["", "shape", "split", "slice", "heads", "bias"]
"""What of an op speaks of sizes and must be made local."""


@dataclass(frozen=True)
class Signature:
    """The labels of an op's dims. An input that is None must be whole (axes, shapes, scalars).

    ``reduced`` labels are in inputs alone, ``whole`` ones may not be cut.
    """

    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand | None, ...]
    sizes: Mapping[str, int]
    reduced: Mapping[str, Reduction] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    linear: Linear = ""
    adapt: Adaptation = ""

    def apart(self, label: str, other: str) -> bool:
        """Whether the two are in different runs of one dim, so that one axis may cut both."""
        return any(
            isinstance(spec, Runs) and _in_different_parts(spec, label, other)
            for operand in (*self.inputs, *self.outputs)
            for spec in operand or ()
        )


def _in_different_parts(spec: Runs, label: str, other: str) -> bool:
    parts = [set(spec_labels(part)) for part in spec.parts]
    return any(label in part and other not in part for part in parts) and any(
        other in part and label not in part for part in parts
    )


def spec_labels(spec: Spec) -> Iterator[str]:
    """The labels of a dim, in order."""
    if isinstance(spec, Runs):
        for part in spec.parts:
            yield from spec_labels(part)
    else:
        yield from spec


def spec_size(spec: Spec, sizes: Mapping[str, int]) -> int:
    """The size of a dim."""
    if isinstance(spec, Runs):
        return sum(spec_size(part, sizes) for part in spec.parts)
    total = 1
    for label in spec:
        total *= sizes[label]
    return total


def compose(spec: Spec, sizes: Mapping[str, int], layouts: Mapping[str, Layout]) -> Layout:
    """The layout of a dim whose labels have those layouts; whole where there is none."""
    if isinstance(spec, Runs):
        return segments_of((spec_size(p, sizes), compose(p, sizes, layouts)) for p in spec.parts)
    return product_of((sizes[label], layouts.get(label)) for label in spec)


def decompose(
    spec: Spec, layout: Layout, sizes: Mapping[str, int], mesh: Mesh
) -> dict[str, Layout] | None:
    """The layouts of the labels of a dim that lies so; None when the cut goes through them."""
    if layout is None:
        return {}
    if isinstance(spec, Runs):
        return _decompose_runs(spec, layout, sizes, mesh)
    if len(spec) == 1:
        return {spec[0]: layout}
    left = list(factors_of(layout, spec_size(spec, sizes)))
    found: dict[str, Layout] = {}
    for label in spec:
        taken = _take(left, sizes[label], mesh)
        if taken is None:
            return None
        found[label] = product_of(taken)
    return found


def _take(left: list[tuple[int, Layout]], size: int, mesh: Mesh) -> Factors | None:
    """Takes factors of that many elements from the front, taking one apart where that can be."""
    taken: list[tuple[int, Layout]] = []
    while size > 1:
        if not left:
            return None
        have, layout = left.pop(0)
        if size % have == 0:
            taken.append((have, layout))
            size //= have
            continue
        parts = _taken_apart(have, layout, size, mesh)
        if parts is None:
            return None
        taken.append(parts[0])
        left.insert(0, parts[1])
        size = 1
    return tuple(taken)


def _taken_apart(
    have: int, layout: Layout, size: int, mesh: Mesh
) -> tuple[tuple[int, Layout], tuple[int, Layout]] | None:
    if have % size:
        return None
    inner = have // size
    if layout is None:
        return (size, None), (inner, None)
    if not isinstance(layout, Split):
        return None
    held = local_size(layout, have, mesh)
    if held % inner or layout.shared > 1:
        return None
    outer = held // inner
    held = 0 if outer == -(-size // mesh.axis_size(layout.axes)) else outer
    return (size, Split(layout.axes, held)), (inner, None)


def _decompose_runs(
    spec: Runs, layout: Layout, sizes: Mapping[str, int], mesh: Mesh
) -> dict[str, Layout] | None:
    if not isinstance(layout, Segments):
        return None
    left = list(layout.parts)
    found: dict[str, Layout] = {}
    for part in spec.parts:
        wanted, taken = spec_size(part, sizes), []
        while wanted > 0:
            size, inner = left.pop(0)
            if size > wanted:
                if inner is not None:
                    return None
                left.insert(0, (size - wanted, None))
                size = wanted
            taken.append((size, inner))
            wanted -= size
        layouts = decompose(part, segments_of(taken), sizes, mesh)
        if layouts is None or any(found.setdefault(k, v) != v for k, v in layouts.items()):
            return None
    return found


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a dim: the middle one of the three that a run of elements is in row-major order.

    The run has ``length`` elements from ``start`` on, seen as [outer, size, inner].
    """

    start: int
    length: int
    outer: int
    size: int
    inner: int

    @staticmethod
    def all_of(size: int) -> Region:
        """The whole dim."""
        return Region(0, size, 1, size, 1)

    @property
    def is_trivial(self) -> bool:
        """Whether there is nothing to cut."""
        return self.size < 2


def regions_of(spec: Spec, region: Region, sizes: Mapping[str, int]) -> tuple[str, Region] | None:
    """The label a region of a dim belongs to, and which region of the label it is."""
    if isinstance(spec, Runs):
        start = 0
        for part in spec.parts:
            length = spec_size(part, sizes)
            if start <= region.start and region.start + region.length <= start + length:
                return regions_of(part, _moved(region, -start), sizes)
            start += length
        return None
    if len(spec) == 1:
        return spec[0], region
    if region.start or region.length != spec_size(spec, sizes):
        return None
    before = 1
    for label in spec:
        size = sizes[label]
        after = region.length // before // size
        fits = not region.outer % before and not region.inner % after
        outer, inner = region.outer // before, region.inner // after
        if fits and outer * region.size * inner == size:
            return label, Region(0, size, outer, region.size, inner)
        before *= size
    return None


def places_of(spec: Spec, label: str, region: Region, sizes: Mapping[str, int]) -> Iterator[Region]:
    """Where the region of a label lies in a dim."""
    if isinstance(spec, Runs):
        start = 0
        for part in spec.parts:
            for found in places_of(part, label, region, sizes):
                yield _moved(found, start)
            start += spec_size(part, sizes)
        return
    if label not in spec:
        return
    if len(spec) == 1:
        yield region
        return
    if region.start or region.length != sizes[label]:
        return
    at = spec.index(label)
    before, after = spec_size(spec[:at], sizes), spec_size(spec[at + 1 :], sizes)
    total = before * sizes[label] * after
    yield Region(0, total, region.outer * before, region.size, region.inner * after)


def _moved(region: Region, by: int) -> Region:
    return Region(region.start + by, region.length, region.outer, region.size, region.inner)


def layout_of(size: int, cuts: Sequence[tuple[Region, Split]]) -> Layout | None:
    """The layout of a dim of which those regions are cut; None when they overlap."""
    parts: list[tuple[int, Layout]] = []
    at = 0
    for region, split in sorted(cuts, key=lambda c: (c[0].start, c[0].length)):
        if region.start < at:
            return None
        factors = ((region.outer, None), (region.size, split), (region.inner, None))
        parts += [(region.start - at, None), (region.length, product_of(factors))]
        at = region.start + region.length
    return segments_of([*parts, (size - at, None)])
