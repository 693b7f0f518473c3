"""The mesh: ranks in named axes, of which each stands for one way to share the work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from gecompiler.ir.errors import UsageError, nearest

AXES = ("pp", "dp", "ep", "sp", "tp")
"""Pipeline, data, expert, sequence and tensor parallelism; the last varies fastest, since its
ranks talk most and neighbours have the best links."""


@dataclass(frozen=True)
class Mesh:
    """Ranks 0 to size - 1; a rank is the mixed-radix number of its coordinates.

    ``axes`` holds (name, size) in the order of `AXES`, those of size 1 left out. Axes joined by
    ``+`` (``dp+sp``) stand for all ranks that differ along any of them.
    """

    axes: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(**sizes: int) -> Mesh:
        """The mesh of those sizes by axis; UsageError for an unknown axis or a size below 1."""
        for name, size in sizes.items():
            if name not in AXES:
                raise UsageError(f"no mesh axis {name!r}", where="mesh", hint=nearest(name, AXES))
            if size < 1:
                raise UsageError(f"{name} is {size}, expected 1 or more", where="mesh")
        return Mesh(tuple((name, sizes[name]) for name in AXES if sizes.get(name, 1) > 1))

    @cached_property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(size for _, size in self.axes)

    def axis_size(self, axes: str) -> int:
        """How many ranks a group along those axes has; 1 for an axis that is not there."""
        sizes = dict(self.axes)
        return math.prod(sizes.get(name, 1) for name in axes.split("+"))

    def coordinates(self, rank: int) -> dict[str, int]:
        """The rank's place along each axis."""
        self._require(rank)
        found: dict[str, int] = {}
        for name, size in reversed(self.axes):
            rank, found[name] = divmod(rank, size)
        return {name: found[name] for name, _ in self.axes}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank at a place; axes left out count as 0."""
        number = 0
        for name, size in self.axes:
            place = coordinates.get(name, 0)
            if not 0 <= place < size:
                raise UsageError(f"{name}={place} is outside of 0 to {size - 1}", where="mesh")
            number = number * size + place
        return number

    def place(self, axes: str, rank: int) -> int:
        """The rank's index in its group along those axes."""
        return self.group(axes, rank).index(rank)

    def group(self, axes: str, rank: int) -> tuple[int, ...]:
        """The ranks that differ from this one along those axes only, in order, it included."""
        own = self.coordinates(rank)
        free = set(axes.split("+"))
        spans = [range(size) if name in free else (own[name],) for name, size in self.axes]
        names = [name for name, _ in self.axes]
        return tuple(self.rank(dict(zip(names, at, strict=True))) for at in product(*spans))

    def groups(self, axes: str) -> tuple[tuple[int, ...], ...]:
        """All groups along those axes, by their first rank."""
        return tuple(
            group for rank in range(self.size) if (group := self.group(axes, rank))[0] == rank
        )

    def communicator(self, axes: str, rank: int) -> str:
        """The name of the rank's group: the axes and the group's first rank, ``tp:4``."""
        return f"{axes}:{self.group(axes, rank)[0]}"

    def _require(self, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise UsageError(f"rank {rank} is outside of 0 to {self.size - 1}", where="mesh")

    def __str__(self) -> str:
        return " x ".join(f"{name} {size}" for name, size in self.axes) or "one rank"
