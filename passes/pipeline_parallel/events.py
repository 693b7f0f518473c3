"""What a stage of a pipeline does, in the order of time: its steps, and transfers between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.passes.pipeline_parallel.chunk import Chunk
from gecompiler.passes.pipeline_parallel.orders import Phase, PipelineShape
from gecompiler.passes.pipeline_parallel.phases import part_of
from gecompiler.passes.pipeline_parallel.posts import Posts
from gecompiler.passes.pipeline_parallel.sequence import Placed


@dataclass(frozen=True, order=True)
class Event:
    """What is written next: steps by their start, transfers by when they are posted.

    Both sides of a transfer sort it alike, which keeps all stages in one order.
    """

    time: float
    late: int
    """0 for transfers, which go before the steps that start when they are posted."""
    order: int
    """The number of the step, of a transfer that of the step that makes the value."""
    tag: int = 0
    chunk: int = 0
    index: int = 0
    """Which of the chunk's transfers."""


def events(
    chunks: Sequence[Chunk],
    stage: int,
    shape: PipelineShape,
    placed: Sequence[Placed],
    posts: Posts,
) -> list[Event]:
    """The steps of all micro-batches of a stage that has those chunks, and its transfers."""
    steps = (
        Event(p.start, 1, i, chunk=p.step.chunk) for i, p in enumerate(placed) if p.stage == stage
    )
    return sorted([*steps, *_transfers(chunks, shape, posts)])


def _transfers(chunks: Sequence[Chunk], shape: PipelineShape, posts: Posts) -> Iterator[Event]:
    for c, chunk in enumerate(chunks):
        for k, op in enumerate(chunk.transfers):
            for m in range(shape.micro_batches):
                made, posted = posts.of(chunk.sender(op), chunk.taker(op), phase_of(op), m)
                yield Event(posted, 0, made, int(op.attr("tag", 0)), c, k)


def phase_of(op: Op) -> Phase:
    """The step that a transfer belongs to."""
    return "backward" if part_of(op) == "backward" else "forward"
