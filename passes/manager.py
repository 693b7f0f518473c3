"""Runs passes: times each, checks what it claims, verifies the graph, and says who broke it.

A pass that fails is a bug of ours (or of the package it comes from), told as `PassError` with
the passes that ran before and the command that brings the graph to the point of failure. A
`GecError` that a pass raises is a message for the user and passes through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gecompiler.ir.activity import tell
from gecompiler.ir.errors import GecError, GraphError, UsageError, nearest
from gecompiler.ir.graph import Graph
from gecompiler.passes.fingerprint import fingerprint
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.registry import PASSES
from gecompiler.passes.time_limit import StrangersError, TimeUpError, run_limited, told

Dump = Callable[[str, Graph], None]
"""Called after a pass with its name and the graph."""


@dataclass(frozen=True, slots=True)
class PassStats:
    """What one pass did: rewrites made, milliseconds taken, ops in the graph before and after."""

    name: str
    changes: int
    ms: float
    ops_before: int
    ops_after: int


class PassError(RuntimeError):
    """A pass that crashed, lied about its changes, or left an invalid graph.

    ``before`` names the passes that ran before it; ``command`` reproduces the failure.
    """

    def __init__(self, message: str, *, name: str, before: Sequence[str], command: str) -> None:
        self.name = name
        self.before = tuple(before)
        self.command = command
        after = f"after {', '.join(before)}" if before else "as the first pass"
        super().__init__(f"pass {name!r} ({after}): {message}\n  to reproduce: {command}")


def run_passes(
    graph: Graph,
    passes: Sequence[Pass],
    context: PassContext,
    *,
    stop_after: str | None = None,
    disabled: Iterable[str] = (),
    dump: Dump | None = None,
    command: str = "gec compile MODEL",
) -> list[PassStats]:
    """Runs ``passes`` on ``graph`` in place and returns what each did.

    ``stop_after`` names the last pass to run; ``name:2`` means its second run. Passes in
    ``disabled`` are left out. ``dump(name, graph)`` is called after each pass. Raises
    UsageError for names that mean no pass, GraphError for a graph that is invalid to begin
    with, whatever GecError a pass raises, and `PassError`.
    """
    off = _known_names(disabled, passes)
    labels = _labels(passes)
    last = _last(stop_after, labels)
    graph.verify()
    stats: list[PassStats] = []
    for instance, label in list(zip(passes, labels, strict=True))[: last + 1]:
        if instance.name in off:
            continue
        before = [s.name for s in stats]
        tell(f"running pass {instance.name}", len(stats), last + 1)
        stats.append(_run_one(graph, instance, context, before, f"{command} --stop-after {label}"))
        if dump is not None:
            dump(instance.name, graph)
    return stats


def _run_one(
    graph: Graph, instance: Pass, context: PassContext, before: list[str], command: str
) -> PassStats:
    def failure(message: str) -> PassError:
        return PassError(message, name=instance.name, before=before, command=command)

    print_before, ops_before = fingerprint(graph), len(graph)
    start = time.perf_counter()
    try:
        changes = _run(graph, instance, context)
    except TimeUpError:
        limit = f"{context.custom_seconds:g} s"
        message = f"has not ended after {limit}; the option custom_seconds allows more"
        raise failure(message) from None
    except GraphError as error:  # a refused edit: the pass's mistake, not the user's
        raise failure(f"made an edit that the graph refuses: {error}") from error
    except (GecError, MemoryError):
        raise
    except StrangersError as error:
        raise failure(f"crashed: {error}") from error.__cause__
    except Exception as error:
        raise failure(f"crashed: {told(error)}") from error
    ms = (time.perf_counter() - start) * 1e3
    _check(graph, changes, print_before, failure)
    return PassStats(instance.name, changes, ms, ops_before, len(graph))


def _check(
    graph: Graph, changes: object, print_before: int, failure: Callable[[str], PassError]
) -> None:
    """Whether the pass counted right and left the graph whole."""
    if type(changes) is not int:
        kind = type(changes).__name__
        raise failure(f"run() returned {kind}, expected int: how many rewrites it made")
    try:
        same = fingerprint(graph) == print_before
    except Exception as error:  # it wrote to the graph's private parts
        raise failure(f"left an invalid graph: {told(error)}") from error
    if same != (changes == 0):
        found = "left the graph as it was" if same else "changed the graph"
        raise failure(f"claims {changes} changes but {found}")
    try:
        graph.verify()
    except GraphError as error:
        raise failure(f"left an invalid graph: {error}") from error
    except Exception as error:
        raise failure(f"left an invalid graph: {told(error)}") from error


def _run(graph: Graph, instance: Pass, context: PassContext) -> int:
    """Runs the pass; what others wrote within a limit of time."""
    if type(instance).__module__.startswith("gecompiler."):
        return instance.run(graph, context)
    return run_limited(lambda: instance.run(graph, context), context.custom_seconds)


def _labels(passes: Sequence[Pass]) -> list[str]:
    """Names that tell repeated passes apart: ``canonicalize``, ``canonicalize:2``."""
    seen: dict[str, int] = {}
    labels = []
    for instance in passes:
        count = seen[instance.name] = seen.get(instance.name, 0) + 1
        labels.append(instance.name if count == 1 else f"{instance.name}:{count}")
    return labels


def _last(stop_after: str | None, labels: list[str]) -> int:
    if stop_after is None:
        return len(labels) - 1
    wanted = stop_after.removesuffix(":1")
    if wanted not in labels:
        raise UsageError(
            f"no pass {stop_after!r} in the pipeline",
            where="stop-after",
            hint=nearest(wanted, labels),
        )
    return labels.index(wanted)


def _known_names(names: Iterable[str], passes: Sequence[Pass]) -> set[str]:
    wanted = set(names)
    known = {p.name for p in passes}
    for name in sorted(wanted - known):
        if name not in PASSES.names():
            raise UsageError(
                f"no pass is named {name!r}",
                where="disable-pass",
                hint=nearest(name, known | set(PASSES.names())),
            )
    return wanted
