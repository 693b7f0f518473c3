"""The four indices of an attention as coordinates: batch b, head h, query i, key j."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.dims import Dim
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.elements import Element, Elements
from gecompiler.passes.attention.layout import Axis, Factor, Layout


@dataclass(frozen=True)
class Frame:
    """The axes of the standard form (B, H, S, T) and the coordinate that runs along each.

    Coordinates are named by role and size, so that layers of equal sizes share what is known
    of their masks.
    """

    batch: Axis
    heads: Axis
    queries: Axis
    keys: Axis
    b: Dim
    h: Dim
    i: Dim
    j: Dim

    @staticmethod
    def of(e: Elements, batch: Axis, heads: Axis, queries: Axis, keys: Axis) -> Frame:
        """The frame over these axes."""
        axes = (("b", batch), ("h", heads), ("i", queries), ("j", keys))
        names = [e.coordinates.variable(role, lay.size(axis)) for role, axis in axes]
        return Frame(batch, heads, queries, keys, *names)

    @property
    def axes(self) -> Layout:
        """(B, H, S, T)."""
        return self.batch, self.heads, self.queries, self.keys

    @property
    def sizes(self) -> tuple[Dim, Dim, Dim, Dim]:
        """The sizes of the four axes."""
        b, h, s, t = (lay.size(a) for a in self.axes)
        return b, h, s, t

    def axis_of(self, coord: Dim) -> Axis | None:
        """The axis that a coordinate runs along; ``()`` for 0, None for anything else."""
        if coord == 0:
            return ()
        for own, axis in zip((self.b, self.h, self.i, self.j), self.axes, strict=True):
            if coord == own:
                return axis
        return None

    def holds_whole(self, axis: Axis) -> bool:
        """Whether an axis has all or none of the factors of each axis of the frame."""
        given = set(lay.flat(axis))
        parts = [set(lay.flat(own)) for own in self.axes]
        return all(part <= given or not part & given for part in parts)

    def element(self, e: Elements, value: str, layout: Layout) -> Element | None:
        """The element that ``value`` contributes to scores of this layout."""
        index: dict[int, Dim] = {}
        for axis, coord in zip(self.axes, (self.b, self.h, self.i, self.j), strict=True):
            self._spread(e, list(lay.flat(axis)), coord, index)
        coords: list[Dim] = []
        for axis in layout:
            factors = lay.flat(axis)
            if any(id(f) not in index for f in factors):
                return None
            coords.append(sum((index[id(f)] * n for f, n in lay.positions(factors)), 0))
        return e.broadcast(value, tuple(coords))

    def _spread(
        self, e: Elements, factors: list[Factor], coord: Dim, index: dict[int, Dim]
    ) -> None:
        """Gives each factor of an axis its share of the axis's coordinate."""
        while len(factors) > 1:
            minor = factors.pop()
            coord, rest = e.coordinates.divide(coord, minor.size)
            index[id(minor)] = rest
        if factors:
            index[id(factors[0])] = coord
