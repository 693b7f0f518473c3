"""How a tensor of the whole model lies on the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel.mesh import Mesh


@dataclass(frozen=True)
class Segment:
    """A run of a dim that is cut by itself, into ``parts`` equal ones.

    ``parts`` divides the axis: with fewer parts than ranks neighbours hold the same one (KV heads
    that are fewer than the ranks).
    """

    size: int
    parts: int


@dataclass(frozen=True)
class Split:
    """A dim cut over axes of the mesh (``tp``, ``dp+sp``).

    Without ``segments`` the whole dim is one, in as many parts as the axes have ranks. Several
    segments lie one after the other and each rank holds its part of each: a projection to
    queries, keys and values in one matrix.
    """

    axes: str
    segments: tuple[Segment, ...] = ()

    def spans(self, size: int, mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """What the rank holds of a dim of that size; UsageError where it does not divide."""
        ranks = mesh.axis_size(self.axes)
        place = mesh.place(self.axes, rank)
        found, start = [], 0
        for segment in self.segments or (Segment(size, ranks),):
            if segment.size % segment.parts or ranks % segment.parts:
                raise UsageError(
                    f"{segment.size} cannot be cut into {segment.parts} parts for {ranks} ranks",
                    where=self.axes,
                )
            length = segment.size // segment.parts
            first = start + place * segment.parts // ranks * length
            found.append(slice(first, first + length))
            start += segment.size
        if start != size:
            raise UsageError(f"segments of {start} in a dim of {size}", where=self.axes)
        return tuple(found)


@dataclass(frozen=True)
class Sharding:
    """A `Split` or None for each dim, and the axes over which it is a sum still to be made."""

    dims: tuple[Split | None, ...]
    partial: tuple[str, ...] = ()

    @staticmethod
    def of(rank: int, splits: Mapping[int, str | Split]) -> Sharding:
        """Of a tensor of that many dims, those of ``splits`` cut; the others whole."""
        dims: list[Split | None] = [None] * rank
        for dim, split in splits.items():
            dims[dim] = Split(split) if isinstance(split, str) else split
        return Sharding(tuple(dims))

    @property
    def is_whole(self) -> bool:
        """Whether every rank holds all of it."""
        return not self.partial and all(split is None for split in self.dims)

    def local_shape(self, shape: Sequence[int], mesh: Mesh, rank: int = 0) -> tuple[int, ...]:
        """The shape of what a rank holds."""
        index = self._index(shape, mesh, rank)
        return tuple(sum(s.stop - s.start for s in spans) for spans in index)

    def take(self, array: Array, mesh: Mesh, rank: int) -> Array:
        """What the rank holds of the whole tensor."""
        for dim, spans in enumerate(self._index(array.shape, mesh, rank)):
            parts = [array[(slice(None),) * dim + (span,)] for span in spans]
            array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=dim)
        return array

    def join(self, parts: Mapping[int, Array], shape: Sequence[int], mesh: Mesh) -> Array:
        """The whole tensor from what ranks hold, by rank; copies are taken from the first.

        UsageError for a sum that is still to be made: the program makes it, by a collective.
        """
        if self.partial:
            raise UsageError("a sum still to be made cannot be joined", where=self.partial[0])
        whole: Array = np.empty(tuple(shape), next(iter(parts.values())).dtype)
        for rank in sorted(parts, reverse=True):
            index = [
                np.concatenate([np.arange(s.start, s.stop) for s in spans])
                for spans in self._index(shape, mesh, rank)
            ]
            whole[np.ix_(*index)] = parts[rank]
        return whole

    def _index(self, shape: Sequence[int], mesh: Mesh, rank: int) -> list[tuple[slice, ...]]:
        if len(shape) != len(self.dims):
            raise UsageError(f"a tensor of {len(shape)} dims has a sharding of {len(self.dims)}")
        return [
            (slice(0, size),) if split is None else split.spans(size, mesh, rank)
            for size, split in zip(shape, self.dims, strict=True)
        ]
