"""One order of all steps of all stages, in which everything comes after what it needs.

Streams that take transfers and steps in the order of one such sequence cannot wait for each
other in a circle, whichever of them block until the other side has come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gecompiler.ir.errors import ScheduleError
from gecompiler.passes.pipeline_parallel.orders import PipelineShape, Step

Duration = Callable[[int, Step], float]
"""How long a stage takes for a step, in any unit."""

Delay = Callable[[int, Step], float]
"""How long the transfer of what a stage's step makes takes."""

_LEAST = 1e-6
"""A step takes some time, so that what it makes is sent after it began."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A step of a stage, and when it runs if communication takes no time."""

    stage: int
    step: Step
    start: float
    end: float


def sequence(
    shape: PipelineShape, duration: Duration, delay: Delay | None = None
) -> tuple[Placed, ...]:
    """All steps by start, needed ones first; ScheduleError when the orders of the stages are stuck.

    ``delay``: how long what a step makes is on its way to another stage. O(steps * stages).
    """
    queues = [shape.steps(stage) for stage in range(shape.stages)]
    position, free = [0] * shape.stages, [0.0] * shape.stages
    done: dict[tuple[int, Step], float] = {}
    found: list[Placed] = []
    left = sum(map(len, queues))
    while left:
        moved = 0
        for stage, queue in enumerate(queues):
            while position[stage] < len(queue):
                step = queue[position[stage]]
                needs = needed(shape, stage, step)
                if any(need not in done for need in needs):
                    break
                late = [
                    done[other, before] + (delay(other, before) if delay and other != stage else 0)
                    for other, before in needs
                ]
                start = max([free[stage], *late])
                end = start + max(duration(stage, step), _LEAST)
                done[stage, step] = free[stage] = end
                found.append(Placed(stage, step, start, end))
                position[stage] += 1
                moved += 1
        if not moved:
            waiting = {s: q[at] for s, q in enumerate(queues) if (at := position[s]) < len(q)}
            raise ScheduleError(f"stages wait for each other: {waiting}", where=shape.order)
        left -= moved
    return tuple(sorted(found, key=lambda p: p.start))


def needed(shape: PipelineShape, stage: int, step: Step) -> list[tuple[int, Step]]:
    """The steps that must be over before this one: of the piece before, or after, the same."""
    piece = step.chunk * shape.stages + stage
    last = shape.chunks * shape.stages - 1
    if step.phase == "forward":
        return [_at(shape, piece - 1, step)] if piece else []
    own = (stage, Step("forward", step.micro_batch, step.chunk))
    return [own] if piece == last else [own, _at(shape, piece + 1, step)]


def _at(shape: PipelineShape, piece: int, step: Step) -> tuple[int, Step]:
    chunk, stage = divmod(piece, shape.stages)
    return stage, Step(step.phase, step.micro_batch, chunk)
