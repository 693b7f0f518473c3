"""Strategies that users write: `StreamAssignStrategy`, and what it gets to see.

A user's class looks at the ops of an `OpGraph` and calls `assign_to_stream` for those it cares
about; the rest are placed around them by the strategy that is set. Whatever goes wrong in it is
a UsageError that names the class, and nothing of what it assigned is kept.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.ir.target import Target
from gecompiler.passes.fingerprint import fingerprint
from gecompiler.passes.streams.op_graph import OpGraph, OpNode
from gecompiler.passes.time_limit import SECONDS, StrangersError, TimeUpError, run_limited

_collected: ContextVar[dict[str, int] | None] = ContextVar("stream assignment", default=None)


class StreamAssignStrategy(ABC):
    """Base class of a user's own strategy."""

    @abstractmethod
    def assign(self, op_graph: OpGraph) -> None:
        """Calls `assign_to_stream` for the ops it wants on a certain stream."""


def assign_to_stream(op: OpNode | str, stream: int) -> None:
    """Places an op; only within `StreamAssignStrategy.assign`. The last call for an op counts."""
    collected = _collected.get()
    if collected is None:
        raise UsageError(
            "called outside of StreamAssignStrategy.assign",
            where="assign_to_stream",
            hint="use set_stream_assignment({name: stream}) to place ops by name",
        )
    name = op if isinstance(op, str) else getattr(op, "name", None)
    if not isinstance(name, str):
        raise UsageError(f"expected an op, found {op!r}", where="assign_to_stream")
    number = None if isinstance(stream, bool) else _index(stream)
    if number is None:
        raise UsageError(
            f"expected the number of a stream for {name!r}, found {stream!r}",
            where="assign_to_stream",
        )
    collected[str(name)] = number


def _index(number: object) -> int | None:
    """The plain int of one, also of numpy's; None for what is none."""
    try:
        return int(operator.index(number))  # type: ignore[arg-type]
    except TypeError:
        return None


@contextmanager
def _collecting() -> Iterator[dict[str, int]]:
    found: dict[str, int] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def run_custom(
    strategy: object, graph: Graph, target: Target, seconds: float = SECONDS
) -> dict[str, int]:
    """What a user's strategy assigns, by op name.

    UsageError when it fails, makes no sense, or takes longer than ``seconds``.
    """
    where = f"stream strategy {type(strategy).__name__}"
    if not isinstance(strategy, StreamAssignStrategy):
        raise UsageError(
            f"expected an instance of StreamAssignStrategy, found {strategy!r}", where=where
        )
    seen = graph.copy()  # what a strategy does to the graph it sees reaches nobody
    before = fingerprint(seen)
    with _collecting() as found:
        try:
            view = OpGraph(seen, target)
            returned: object = run_limited(lambda: strategy.assign(view), seconds)
        except UsageError as error:
            raise UsageError(
                error.message, where=f"{where}, {error.where}", hint=error.hint
            ) from error
        except TimeUpError:
            raise UsageError(
                f"assign() has not ended after {seconds:g} s",
                where=where,
                hint="a loop without end? the option custom_seconds allows more time",
            ) from None
        except StrangersError as error:
            raise UsageError(
                f"assign() raised {error}", where=where, hint="--debug shows where"
            ) from error.__cause__
    if returned is not None:
        raise UsageError(
            f"assign() returned {type(returned).__name__}, which nobody reads",
            where=where,
            hint="call assign_to_stream(op, stream) for each op, and return nothing",
        )
    if _changed(seen, before):
        raise UsageError(
            "it changed the graph, which strategies may only look at",
            where=where,
            hint="a change of the graph is a pass's work (`gec passes`)",
        )
    found = dict(found)  # a thread that it left behind may still assign
    for name, stream in found.items():
        if name not in graph:
            hint = nearest(name, (op.name for op in graph.ops))
            raise UsageError(f"it assigned the unknown op {name!r}", where=where, hint=hint)
        check_stream(stream, target, f"{where}, op {name!r}")
    return {op.name: found[op.name] for op in graph.ops if op.name in found}


def _changed(graph: Graph, before: int) -> bool:
    try:
        return fingerprint(graph) != before
    except Exception:  # its private parts are no longer what they were
        return True


def check_stream(stream: int, target: Target, where: str) -> None:
    """UsageError when the device has no such stream."""
    most = target.limits.max_streams
    if not 0 <= stream < most:
        shown = stream if abs(stream) < 10**18 else f"2^{stream.bit_length() - 1} or so"
        raise UsageError(
            f"there is no stream {shown}: {target.name} has {most}",
            where=where,
            hint=f"streams are numbered 0 to {most - 1}",
        )
