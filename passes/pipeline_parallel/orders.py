"""In which order each stage of a pipeline takes its micro-batches.

``gpipe`` runs all forwards, then all backwards (Huang et al. 2019, GPipe). ``1f1b`` begins a
backward as soon as one can be run, and from then on takes turns (PipeDream-Flush, Narayanan et
al. 2019, 2021): as fast, with fewer activations held. ``interleaved`` gives each stage several
chunks of the model, stage i of p the pieces i, p + i, 2p + i, ...: a shorter bubble for more
communication (Narayanan et al. 2021, Megatron-LM, section 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from gecompiler.ir.errors import UsageError, nearest

Phase = Literal["forward", "backward"]
OrderKind = Literal["gpipe", "1f1b", "interleaved"]
ORDERS: tuple[OrderKind, ...] = get_args(OrderKind)


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch through one chunk of a stage, forwards or backwards."""

    phase: Phase
    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """A pipeline: its stages, micro-batches, the chunks of a stage, and its order.

    UsageError where these do not go together.
    """

    stages: int
    micro_batches: int
    order: OrderKind = "1f1b"
    chunks: int = 1
    training: bool = True
    """Whether there is a backward pass; without one only forwards are run."""
    abreast: int = 1
    """So many micro-batches take turns between their collectives, where there is one stage."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UsageError(
                f"no pipeline schedule {self.order!r}",
                where="option 'pipeline_schedule'",
                hint=nearest(str(self.order), ORDERS),
            )
        for name in ("stages", "micro_batches", "chunks", "abreast"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.order != "interleaved" and self.chunks > 1:
            raise UsageError(
                f"{self.chunks} chunks a stage go with the interleaved order only",
                where="option 'pipeline_schedule'",
            )
        if self.abreast > 1 and self.stages * self.chunks > 1:
            raise UsageError("micro-batches go side by side where there is one stage")

    @property
    def bubble(self) -> float:
        """The share of the time in which uniform stages are idle: (p-1) / (v*m + p-1).

        v is the chunks of a stage; communication takes no time, and where v > 1 the micro-batches
        come in whole rounds of one a stage (Narayanan et al. 2021, 2.2).
        """
        idle = self.stages - 1
        return idle / (self.chunks * self.micro_batches + idle)

    def steps(self, stage: int) -> tuple[Step, ...]:
        """What the stage runs, in order."""
        forwards = [self._step("forward", k) for k in range(self.micro_batches * self.chunks)]
        if not self.training:
            return tuple(forwards)
        backwards = [self._step("backward", k) for k in range(len(forwards))]
        return tuple(_alternating(forwards, backwards, self._warm_up(stage)))

    def peak_in_flight(self, stage: int) -> int:
        """The most micro-batches (of one chunk each) whose activations the stage holds at once.

        min(p - i, m) under ``1f1b`` and m under ``gpipe``, for stage i of p; on one stage as many
        as are side by side.
        """
        if self.abreast > 1:
            return min(self.abreast, self.micro_batches)
        held = most = 0
        for step in self.steps(stage):
            held += 1 if step.phase == "forward" else -1
            most = max(most, held)
        return most if self.training else 1

    def _warm_up(self, stage: int) -> int:
        """How many forwards come before the first backward can follow one at once."""
        every = self.micro_batches * self.chunks
        if self.order == "gpipe":
            return every
        after = self.stages - stage - 1
        if self.order == "interleaved" and self.chunks > 1:
            size, longer = self._rounds()
            longest = max(self.stages, size + (longer > 0))
            return min(every, 2 * after + (self.chunks - 1) * longest)
        return min(every, after)

    def _rounds(self) -> tuple[int, int]:
        """Micro-batches in each round of the interleaved order, and how many rounds have one more.

        As many as there are stages, or a few more where they do not come out even: after a
        round of fewer, stages would wait for each other.
        """
        return divmod(self.micro_batches, max(1, self.micro_batches // self.stages))

    def _step(self, phase: Phase, number: int) -> Step:
        """The number-th step of a phase: round after round, the longer ones first, by chunks."""
        if self.chunks == 1:
            return Step(phase, number)
        size, longer = self._rounds()
        first, rest = longer * (size + 1), number - longer * (size + 1) * self.chunks
        if rest < 0:
            first, rest, size = 0, number, size + 1
        round_, place = divmod(rest, size * self.chunks)
        chunk, offset = divmod(place, size)
        if phase == "backward":
            chunk = self.chunks - 1 - chunk
        return Step(phase, first + round_ * size + offset, chunk)


def _alternating(forwards: list[Step], backwards: list[Step], warm_up: int) -> Iterator[Step]:
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - warm_up :]
