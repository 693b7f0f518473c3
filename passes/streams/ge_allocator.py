"""The graph engine's static allocator: the ladder, and the clean-up after it.

CANN GE, ``logical_stream_allocator.cc`` (behaviour only), in its order: the ladder of labels,
independent engines and dependencies; units that need no stream moved to their neighbours;
streams that do not overlap folded away; ids made dense. Or everything on one stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.errors import UsageError
from gecompiler.passes.streams.engines import ENGINES, UNKNOWN, Engine
from gecompiler.passes.streams.folding import fold_ineffective
from gecompiler.passes.streams.ladder import Ladder, Unit


class LabelConflictError(UsageError):
    """A stream label where there is to be one stream (GE's E10055)."""


class ModeConflictError(UsageError):
    """An automatic mode where there is to be one stream (GE's E10056)."""


@dataclass(frozen=True)
class AllocatorOptions:
    """GE's streamMaxParallelNum, memoryOptimizationPolicy, enableSingleStream, and its mode.

    ``max_parallel`` is by engine, 1 where not given.
    """

    max_parallel: Mapping[str, int] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)
    memory_priority: bool = False
    single_stream: bool = False
    auto_mode: str = ""
    clusters: bool = False
    """Leaves the ladder's ids as they are: no folding, and ids that need not be dense."""


@dataclass(frozen=True)
class Allocation:
    """The stream of each unit, dense from 0, None for those that need none; and why."""

    stream: tuple[int | None, ...]
    rules: tuple[str, ...]


def allocate(
    units: Sequence[Unit],
    preds: Sequence[Sequence[int]],
    succs: Sequence[Sequence[int]],
    options: AllocatorOptions,
) -> Allocation:
    """Streams as GE gives them. Units are in a topological order.

    With ``single_stream``, ModeConflictError when an automatic mode is set too, and
    LabelConflictError when a unit has a label.
    """
    if options.single_stream:
        check_single_stream([u.key for u in units], options.auto_mode)
        return Allocation((0,) * len(units), ("single stream",) * len(units))
    ladder = Ladder(
        units, preds, succs, options.max_parallel, options.engines, options.memory_priority
    )
    given, rules = ladder.run()
    stream: list[int | None] = list(given)
    _move_skipped(units, preds, succs, options.engines, stream)
    if options.clusters:
        return Allocation(tuple(stream), tuple(rules))
    kept = {i for i, unit in enumerate(units) if unit.key or stream[i] is None}
    closed = {s for i, s in enumerate(stream) if units[i].key and s is not None}
    numbers = [-1 if s is None else s for s in stream]
    folded = fold_ineffective(preds, succs, numbers, kept, closed | {-1})
    for i, (before, now) in enumerate(zip(numbers, folded, strict=True)):
        if before != now:
            rules[i] = "folded onto the stream that stands idle meanwhile"
        elif now < 0:
            rules[i] = f"engine {units[i].engine} needs no stream"
    return Allocation(tuple(dense_ids([None if s < 0 else s for s in folded])), tuple(rules))


def check_single_stream(labels: Sequence[str], auto_mode: str) -> None:
    """Refuses what contradicts a single stream, the mode first, as GE does."""
    if auto_mode:
        raise ModeConflictError(
            f"a single stream was asked for, and the automatic mode {auto_mode!r} for several",
            where="enable_single_stream",
            hint="leave one of the two out (the graph engine's E10056)",
        )
    labelled = [label for label in labels if label]
    if labelled:
        raise LabelConflictError(
            f"a single stream was asked for, and the stream label {labelled[0]!r} for one more",
            where="enable_single_stream",
            hint="remove the label, or allow several streams (the graph engine's E10055)",
        )


def dense_ids(stream: Sequence[int | None]) -> list[int | None]:
    """Ids from 0 without holes, in their old order."""
    new = {s: i for i, s in enumerate(sorted({s for s in stream if s is not None}))}
    return [None if s is None else new[s] for s in stream]


def _move_skipped(
    units: Sequence[Unit],
    preds: Sequence[Sequence[int]],
    succs: Sequence[Sequence[int]],
    engines: Mapping[str, Engine],
    stream: list[int | None],
) -> None:
    """What needs no stream gets none if nothing before has one, else its neighbours'."""
    for i, unit in enumerate(units):
        if unit.key or not engines.get(unit.engine, UNKNOWN).skip:
            continue
        if all(stream[p] is None for p in preds[i]):
            stream[i] = None
            continue
        around = {stream[n] for n in (*preds[i], *succs[i])} - {None}
        if len(around) == 1:
            stream[i] = around.pop()
