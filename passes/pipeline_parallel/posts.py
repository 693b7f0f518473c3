"""When transfers between stages are posted.

A send goes when its value is made; a receive is posted while the stage runs the step before the
one that needs it, so that no more memory lies ready than for one step ahead. The later of the
two is when the transfer begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.passes.pipeline_parallel.orders import Phase, PipelineShape, Step
from gecompiler.passes.pipeline_parallel.sequence import Placed

AHEAD = 1
"""Steps that run while what a later one needs is received."""


class Posts:
    """Answers for one pipeline, whose pieces are numbered through all stages and chunks."""

    def __init__(self, shape: PipelineShape, placed: Sequence[Placed]) -> None:
        self._stages = shape.stages
        self._placed = placed
        self._number = {(p.stage, p.step): i for i, p in enumerate(placed)}
        self._turn: dict[tuple[int, Step], int] = {}
        self._ends: list[list[float]] = [[] for _ in range(shape.stages)]
        for p in placed:
            self._turn[p.stage, p.step] = len(self._ends[p.stage])
            self._ends[p.stage].append(p.end)

    def place(self, piece: int, phase: Phase, micro_batch: int) -> tuple[int, int]:
        """The stage that runs a step, and which of its steps that is, from 0."""
        key = self._key(piece, phase, micro_batch)
        return key[0], self._turn[key]

    def of(self, sender: int, taker: int, phase: Phase, micro_batch: int) -> tuple[int, float]:
        """The number of the step that makes the value, and when the transfer is posted."""
        made = self._number[self._key(sender, phase, micro_batch)]
        stage, step = self._key(taker, phase, micro_batch)
        turn = self._turn[stage, step] - AHEAD - 1
        ready = self._ends[stage][turn] if turn >= 0 else 0.0
        return made, max(self._placed[made].end, ready)

    def _key(self, piece: int, phase: Phase, micro_batch: int) -> tuple[int, Step]:
        chunk, stage = divmod(piece, self._stages)
        return stage, Step(phase, micro_batch, chunk)
