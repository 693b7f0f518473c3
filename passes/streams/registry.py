"""The strategies by name."""

from __future__ import annotations

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.passes.streams.auto import AutoStreams
from gecompiler.passes.streams.compute_overlap import ComputeOverlap
from gecompiler.passes.streams.critical_path import CriticalPath
from gecompiler.passes.streams.default import DefaultStreams
from gecompiler.passes.streams.pipeline import Pipeline
from gecompiler.passes.streams.single import SingleStream
from gecompiler.passes.streams.strategy import StreamStrategy

STRATEGIES: dict[str, type[StreamStrategy] | type[AutoStreams]] = {
    kind.name: kind
    for kind in (
        AutoStreams,
        SingleStream,
        DefaultStreams,
        CriticalPath,
        ComputeOverlap,
        Pipeline,
    )
}
"""Every strategy that `stream_strategy` accepts; ``auto`` chooses among the others."""


def check_strategy(name: str) -> None:
    """UsageError with the nearest names for a strategy that does not exist."""
    if name not in STRATEGIES:
        raise UsageError(
            f"no stream strategy {name!r}",
            where="option 'stream_strategy'",
            hint=nearest(name, STRATEGIES),
        )


def make_strategy(name: str) -> StreamStrategy:
    """The strategy of that name that places tasks itself (not ``auto``)."""
    check_strategy(name)
    kind = STRATEGIES[name]
    if not issubclass(kind, StreamStrategy):
        raise UsageError(f"{name!r} chooses among strategies and is none", where="stream_strategy")
    return kind()
