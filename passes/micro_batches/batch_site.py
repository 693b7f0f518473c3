"""What a batch rule looks at, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op


class MixedSamplesError(Exception):
    """An op whose result for one sample depends on others, or that no rule knows."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The axis of each output, and inputs (by index) that must be cut along an axis as well."""

    outputs: tuple[int, ...]
    cut: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """An op with static shapes, and the axes along which its inputs are split (None: whole)."""

    graph: Graph
    op: Op
    axes: tuple[int | None, ...]

    def shape(self, index: int) -> tuple[int, ...]:
        """The sizes of an input; empty for one left out."""
        return _sizes(self.graph, self.op.input(index))

    def made(self, index: int = 0) -> tuple[int, ...]:
        """The sizes of an output."""
        return _sizes(self.graph, self.op.outputs[index])

    def axis(self, index: int) -> int | None:
        """The axis along which an input is split."""
        return self.axes[index] if index < len(self.axes) else None

    def only(self, *allowed: int) -> int:
        """The axis of the first split input; refuses when another than ``allowed`` is split."""
        found = [i for i, axis in enumerate(self.axes) if axis is not None]
        self.require(all(i in allowed for i in found), "an input of it cannot be split")
        axis = self.axes[found[0]]
        assert axis is not None
        return axis

    def ints(self, index: int, name: str) -> tuple[int, ...] | None:
        """Numbers given as a constant input or, in older opsets, as an attribute."""
        if self.op.input(index):
            constant = self.graph.constant(self.op.input(index))
            array = constant.small_array() if constant is not None else None
            self.require(array is not None, f"its {name} are not constant")
            return tuple(int(n) for n in np.asarray(array).reshape(-1))
        given = self.op.attr(name)
        return None if given is None else tuple(given)

    def whole(self, *indexes: int, why: str = "an input of it cannot be split") -> None:
        """Refuses the op when one of these inputs is split."""
        self.require(all(self.axis(i) is None for i in indexes), why)

    def require(self, holds: bool, why: str) -> None:
        """Refuses the op unless ``holds``."""
        if not holds:
            raise MixedSamplesError(f"{self.op.name!r} ({self.op.kind}): {why}")


def same_axis(site: Site, axis: int) -> Rule:
    """All outputs are split along ``axis``."""
    return Rule((axis,) * len(site.op.outputs))


def aligned(site: Site, indexes: Sequence[int], out: tuple[int, ...], tail: int = 0) -> Rule:
    """Broadcast (right-aligned) over all dims but the last ``tail``, which must not be split.

    What is whole but has the full size along the axis is cut.
    """
    found = {
        len(out) - len(site.shape(i)) + axis for i in indexes if (axis := site.axis(i)) is not None
    }
    site.require(len(found) == 1, "its inputs are split along different axes")
    at = found.pop()
    site.require(0 <= at < len(out) - tail, "the axis of the batch is worked on")
    cut: dict[int, int] = {}
    for i in indexes:
        shape = site.shape(i)
        own = at - (len(out) - len(shape))
        if own < 0 or shape[own] == 1:
            site.whole(i, why="a split input is broadcast along the batch")
        elif site.axis(i) is None:
            cut[i] = own
    return Rule((at,) * len(site.op.outputs), cut)


def with_samples_at(site: Site, places: Mapping[int, int], outputs: tuple[int, ...]) -> Rule:
    """Inputs that have their samples at a given axis (by input), where they have more than one.

    Those that are whole are cut, inputs not named must not be split, nor any along another axis.
    """
    cut: dict[int, int] = {}
    for i in range(len(site.op.inputs)):
        shape, place, axis = site.shape(i), places.get(i), site.axis(i)
        if place is None or place >= len(shape) or shape[place] == 1:
            site.whole(i)
            continue
        site.require(axis in (None, place), "an input is split along another axis than its samples")
        if axis is None:
            cut[i] = place
    return Rule(outputs, cut)


def _sizes(graph: Graph, value: str) -> tuple[int, ...]:
    found = graph.tensor(value) if value else None
    return found.sizes if found is not None else ()
