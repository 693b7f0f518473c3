"""The streams that the user fixed, and how many streams there are to place work on."""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.ir.target import Target
from gecompiler.passes.scheduling.lowering import VIEW_OPS
from gecompiler.passes.streams.custom import StreamAssignStrategy, check_stream, run_custom
from gecompiler.passes.streams.naming import resolve_names


def user_streams(
    graph: Graph,
    target: Target,
    assignment: Mapping[str, int],
    strategy: StreamAssignStrategy | None,
    diagnostics: Diagnostics,
    *,
    enabled: bool = True,
    seconds: float = 60.0,
) -> dict[str, int]:
    """The stream of every op that the user placed, by name or by a strategy of their own.

    What is said by name wins over what a strategy says. UsageError for names and streams that
    do not exist and for a strategy that fails; with ``enabled`` false the user's choices are
    left out, with a warning.
    """
    if not enabled:
        if assignment or strategy is not None:
            diagnostics.warn(
                "assignment-ignored",
                "enable_stream_parallel is false: everything is on one stream",
                "set enable_stream_parallel to true to have the assignment obeyed",
            )
        return {}
    for name, stream in assignment.items():
        check_stream(stream, target, f"stream assignment {name!r}")
    found = run_custom(strategy, graph, target, seconds) if strategy is not None else {}
    found.update(resolve_names(graph, assignment, diagnostics))
    if assignment and all(graph.op(name).is_(*VIEW_OPS) for name in found):
        diagnostics.warn(
            "assignment-without-effect",
            "the assignment names only ops that move nothing (Reshape and the like): "
            "they run with the op they belong to",
            "name the ops that make or use their tensors",
        )
    return found


def stream_count(
    target: Target,
    requested: int | None,
    fixed: Mapping[str, int],
    diagnostics: Diagnostics,
    *,
    enabled: bool = True,
) -> int:
    """How many streams may be used: what was asked for, within what the device has."""
    most = target.limits.max_streams
    if not enabled:
        return 1
    if requested is not None and requested > most:
        diagnostics.warn(
            "too-many-streams",
            f"requested {requested}, device has {most}, using {most}",
            f"more streams than the {most} hardware queues of {target.name} gain nothing",
        )
    count = min(requested or most, most)
    needed = max(fixed.values(), default=-1) + 1
    if needed > count:
        diagnostics.warn(
            "assignment-needs-streams",
            f"the assignment uses stream {needed - 1}: using {needed} streams, not {count}",
            "assignments win over num_streams",
        )
    return max(count, needed)
