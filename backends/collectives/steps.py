"""Step schedules: who sends what to whom, step after step.

A message is cut into chunks, numbered so that each place of the group owns as many neighbours.
All transfers of a step happen at once, and read what was there before it; a transfer that
reduces adds what it brings to what its target has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple


class Transfer(NamedTuple):
    """What goes from one place of the group to another."""

    source: int
    target: int
    chunks: tuple[int, ...]
    reduce: bool = False


Step = tuple[Transfer, ...]
Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Plan:
    """How a collective is made: its steps, and how many chunks make up the message.

    Of an all-to-all chunk ``s * n + d`` goes from place s to place d, and n make up what one
    rank has; otherwise chunk c belongs to place ``c * n // chunks``.
    """

    steps: Steps
    chunks: int


@dataclass(frozen=True)
class Group:
    """The places 0 to n - 1 of a group, and how they lie in the units of the nearest links."""

    units: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """How many places there are."""
        return sum(map(len, self.units))

    @property
    def even(self) -> int:
        """How many places each unit has, where there are several units and all have as many."""
        sizes = {len(unit) for unit in self.units}
        return sizes.pop() if len(self.units) > 1 and len(sizes) == 1 else 0


def together(parts: Iterable[Sequence[Step]]) -> Steps:
    """Schedules of disjoint transfers side by side, step by step."""
    return tuple(
        tuple(transfer for step in steps for transfer in step)
        for steps in zip_longest(*parts, fillvalue=())
    )


def reversed_in_time(steps: Sequence[Step]) -> Steps:
    """A gathering run backwards, every transfer turned round and adding: a reduction to parts."""
    return tuple(
        tuple(Transfer(t.target, t.source, t.chunks, True) for t in step)
        for step in reversed(steps)
    )
