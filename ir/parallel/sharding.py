"""How a tensor of the whole model lies on the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel.layout import (
    Layout,
    Split,
    axes_in,
    describe,
    held_first,
    held_indices,
    local_size,
)
from gecompiler.ir.parallel.mesh import Mesh


@dataclass(frozen=True)
class Sharding:
    """A `Layout` for each dim, and the axes over which the ranks hold parts of a sum.

    Over the axes of ``partial`` the whole is the sum of what the ranks hold; a constant cut so
    is there on the first rank of each group, and zeros on the others. Dims of a constant named
    in ``once`` hold zeros in place of copies, as a sum over them needs.
    """

    dims: tuple[Layout, ...]
    partial: tuple[str, ...] = ()
    once: tuple[int, ...] = ()

    @staticmethod
    def of(rank: int, splits: Mapping[int, str | Layout]) -> Sharding:
        """Of a tensor of that many dims, those of ``splits`` cut; the others whole."""
        dims: list[Layout] = [None] * rank
        for dim, split in splits.items():
            dims[dim] = Split(split) if isinstance(split, str) else split
        return Sharding(tuple(dims))

    @property
    def is_whole(self) -> bool:
        """Whether every rank holds all of it."""
        return not self.partial and all(layout is None for layout in self.dims)

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that dims are cut over, each once."""
        return tuple(dict.fromkeys(a for layout in self.dims for a in axes_in(layout)))

    def local_shape(self, shape: Sequence[int], mesh: Mesh, rank: int = 0) -> tuple[int, ...]:
        """The shape of what a rank holds, the same on all of them."""
        mesh.coordinates(rank)
        self._require(shape)
        return tuple(
            local_size(layout, size, mesh) for layout, size in zip(self.dims, shape, strict=True)
        )

    def take(self, array: Array, mesh: Mesh, rank: int) -> Array:
        """What the rank holds of the whole tensor."""
        self._require(array.shape)
        if any(mesh.place(axes, rank) for axes in self.partial):
            return np.zeros(self.local_shape(array.shape, mesh), array.dtype)
        whole = array.shape
        for dim, layout in enumerate(self.dims):
            if layout is not None:
                array = _taken(array, held_indices(layout, whole[dim], mesh, rank), dim)
        for dim in self.once:
            fresh = held_first(self.dims[dim], whole[dim], mesh, rank)
            if not fresh.all():
                array = array.copy()
                array[(slice(None),) * dim + (~fresh,)] = 0
        return array

    def join(self, parts: Mapping[int, Array], shape: Sequence[int], mesh: Mesh) -> Array:
        """The whole tensor from what ranks hold, by rank; copies are taken from the first.

        UsageError for a sum that is still to be made: the program makes it, by a collective.
        """
        if self.partial:
            raise UsageError("a sum still to be made cannot be joined", where=self.partial[0])
        self._require(shape)
        whole: Array = np.empty(tuple(shape), next(iter(parts.values())).dtype)
        for rank in sorted(parts, reverse=True):
            index, fresh = [], []
            for layout, size in zip(self.dims, shape, strict=True):
                first = held_first(layout, size, mesh, rank)
                index.append(held_indices(layout, size, mesh, rank)[first])
                fresh.append(np.flatnonzero(first))
            whole[np.ix_(*index)] = parts[rank][np.ix_(*fresh)]
        return whole

    def _require(self, shape: Sequence[int]) -> None:
        if len(shape) != len(self.dims):
            raise UsageError(f"a tensor of {len(shape)} dims has a sharding of {len(self.dims)}")

    def __str__(self) -> str:
        inner = ", ".join(describe(layout) for layout in self.dims)
        return f"[{inner}]" + "".join(f" sum over {axes}" for axes in self.partial)


def _taken(array: Array, index: Array, dim: int) -> Array:
    if index.size and int(index[-1]) - int(index[0]) == index.size - 1 and _rises(index):
        first = int(index[0])
        return array[(slice(None),) * dim + (slice(first, first + index.size),)]
    return np.take(array, index, axis=dim)


def _rises(index: Array) -> bool:
    return bool((np.diff(index) == 1).all())
