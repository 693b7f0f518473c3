"""In how many micro-batches, on how many streams and how far apart: decided by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from gecompiler.passes.scheduling.schedule_variant import Variant, Variants
from gecompiler.passes.streams.pipeline import Pipeline
from gecompiler.passes.streams.strategy import Placement, StrategyContext

MOST_TASKS = 6_000
"""No further shape is tried once graphs with this many tasks in all were."""

MOST_WITH_LAGS = 15_000
"""No further lag is tried once graphs with this many tasks in all were."""

FIRST_LAG = 1.0
OTHER_LAGS = (0.5, 1.5, 2.0)
"""Stages between two micro-batches: the first for every shape, the others for the best of them
(they make a few per cent)."""


class Timed(Protocol):
    """A candidate that was simulated."""

    @property
    def makespan_ns(self) -> int:
        """Its simulated time."""


Attempt = Callable[[Placement, Variant], Timed | None]
"""Simulates a placement; None where the device cannot hold it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many micro-batches there are, and how many streams they go through."""

    parts: int
    lanes: int


def asked_for(streams: int, depth: int) -> Iterator[Shape]:
    """The shapes that ``num_streams`` and ``pipeline_depth`` allow, the likeliest first.

    As many micro-batches as streams are the largest that keep all streams busy. Fewer read the
    weights less often; twice as many fill and drain the streams sooner.
    """
    lanes = min(streams, depth)
    for fewer in range(lanes, 1, -1):
        yield Shape(fewer, fewer)
    yield Shape(2 * lanes, lanes)


def search_pipeline(
    shapes: Iterable[Shape],
    variants: Variants,
    context: StrategyContext,
    attempt: Attempt,
    lags: Iterable[float] = (),
) -> None:
    """Tries the shapes, at least the first, then other ``lags`` for the best of them.

    MixedSamplesError when the batch cannot be split.
    """
    best: tuple[int, Shape, Variant] | None = None
    seen: set[tuple[int, int]] = set()
    tasks = each = 0
    for shape in shapes:
        if seen and tasks + each * shape.parts > MOST_TASKS:
            continue
        variant = variants.in_parts(shape.parts)
        key = (len(variant.sizes), shape.lanes)
        if key in seen:
            continue
        seen.add(key)
        tasks += len(variant.tasks)
        each = len(variant.tasks) // len(variant.sizes)
        timed = attempt(_placed(shape, variant, context, FIRST_LAG), variant)
        if timed is not None and (best is None or timed.makespan_ns < best[0]):
            best = (timed.makespan_ns, shape, variant)
    if best is None:
        return
    _, shape, variant = best
    for lag in lags:
        tasks += len(variant.tasks)
        if tasks > MOST_WITH_LAGS:
            return
        attempt(_placed(shape, variant, context, lag), variant)


def _placed(shape: Shape, variant: Variant, context: StrategyContext, lag: float) -> Placement:
    narrowed = replace(
        context,
        streams=min(shape.lanes, context.streams),
        fixed=variant.fixed,
        pipeline_depth=max(shape.lanes, context.pipeline_depth),
        parts=variant.part_of,
    )
    return Pipeline(lag).assign(variant.tasks, narrowed)
