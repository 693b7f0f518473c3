"""The strategies by name."""

from __future__ import annotations

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.passes.streams.auto import AutoStreams
from gecompiler.passes.streams.compute_overlap import ComputeOverlap
from gecompiler.passes.streams.critical_path import CriticalPath
from gecompiler.passes.streams.custom_sources import custom_strategies, is_strategy_file
from gecompiler.passes.streams.cv import CubeAndVector
from gecompiler.passes.streams.dag_mode import DagMode
from gecompiler.passes.streams.default import DefaultStreams
from gecompiler.passes.streams.heft import Heft
from gecompiler.passes.streams.load_balance import LoadBalance
from gecompiler.passes.streams.main_stream import MainStream
from gecompiler.passes.streams.optimal import Optimal
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
        CubeAndVector,
        LoadBalance,
        MainStream,
        Heft,
        Optimal,
    )
}
"""Every strategy that `stream_strategy` accepts; ``auto`` chooses among the others."""


GE_NAMES = {"LoadBalance": "load_balance", "MainStream": "main_stream"}
"""The graph engine's spellings."""

MOST = 64
"""The largest N of ``load_balance:N`` and ``main_stream:N``, as in the graph engine."""


def parse_strategy(text: str) -> tuple[str, int | None]:
    """The strategy's name and, of ``load_balance:4`` or ``LoadBalance:4``, the number.

    UsageError with the nearest names for a strategy that does not exist, for a number outside
    1 to 64, and for a number where the strategy takes none.
    """
    name, colon, number = text.partition(":")
    name = GE_NAMES.get(name, name)
    where = "option 'stream_strategy'"
    if name not in STRATEGIES:
        hint = nearest(name, (*STRATEGIES, *custom_strategies()))
        if is_strategy_file(text):
            hint = "a Python file is run only where the command line names it: --strategy FILE.py"
        raise UsageError(f"no stream strategy {name!r}", where=where, hint=hint)
    if not colon:
        return name, None
    if not issubclass(STRATEGIES[name], DagMode):
        raise UsageError(
            f"strategy {name!r} takes no number, found {text!r}",
            where=where,
            hint="the number of streams is the option num_streams",
        )
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:3]) <= MOST):
        raise UsageError(
            f"expected a number from 1 to {MOST} after the colon, found {text!r}",
            where=where,
            hint=f"for example {name}:4",
        )
    return name, int(number)


def check_strategy(text: str) -> None:
    """UsageError for a strategy that does not exist, see `parse_strategy`."""
    parse_strategy(text)


def make_strategy(text: str) -> StreamStrategy:
    """The strategy of that name that places tasks itself (not ``auto``)."""
    name, count = parse_strategy(text)
    kind = STRATEGIES[name]
    if not issubclass(kind, StreamStrategy):
        raise UsageError(f"{name!r} chooses among strategies and is none", where="stream_strategy")
    return kind(count=count) if issubclass(kind, DagMode) else kind()


def streams_asked(text: str) -> int | None:
    """How many streams the strategy's own number asks for."""
    return parse_strategy(text)[1]
