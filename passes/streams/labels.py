"""Stream labels as streams: ops with one label share a stream, whatever the strategy.

The graph engine's own strategies work on labels; for the others the labels become streams that
are fixed before the rest is placed.
"""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.graph import Graph
from gecompiler.passes.streams.dag_mode import DagMode
from gecompiler.passes.streams.ge_allocator import check_single_stream
from gecompiler.passes.streams.registry import STRATEGIES, parse_strategy
from gecompiler.passes.streams.strategy import Placement

LADDER = ("default", "cv")


def label_streams(
    graph: Graph,
    strategy: str,
    fixed: Mapping[str, int],
    limit: int,
    *,
    enabled: bool,
) -> dict[str, int]:
    """The stream of each labelled op that ``fixed`` says nothing of; empty where GE's rules act.

    Labels take the streams from 1 up, in order of appearance, and stream 0 is left to the rest;
    a label some of whose ops are fixed goes with the first of these. Labels that find none of
    the ``limit`` streams free share the last one (`warn_of_shared_streams`). A single stream is
    refused where there are labels, as the graph engine does: LabelConflictError (E10055), or
    ModeConflictError (E10056) where one of its automatic modes is asked for as well.
    """
    labels = {op.name: op.info.label for op in graph.ops if op.info.label}
    name = parse_strategy(strategy)[0]
    mode = name in LADDER[1:] or issubclass(STRATEGIES[name], DagMode)
    if name == "single" or not enabled:
        check_single_stream(list(labels.values()), strategy if mode else "")
        return {}
    if mode or name in LADDER or not labels:
        return {}
    streams = _number(labels, fixed, limit, free=len(labels) < len(graph))
    return {op: streams[label] for op, label in labels.items() if op not in fixed}


def _number(
    labels: Mapping[str, str], fixed: Mapping[str, int], limit: int, *, free: bool
) -> dict[str, int]:
    found: dict[str, int] = {}
    for op, label in labels.items():
        if op in fixed:
            found.setdefault(label, fixed[op])
    taken = {*found.values(), *fixed.values()}
    first = 1 if free and limit > 1 else 0
    ids = (i for i in range(first, limit) if i not in taken)
    for label in labels.values():
        if label not in found:
            found[label] = next(ids, limit - 1)
    return found


def warn_of_shared_streams(
    placement: Placement, labels: Mapping[str, str], diagnostics: Diagnostics
) -> None:
    """Warns where ops of several labels (by op name) had to go on one stream."""
    on: dict[int, dict[str, None]] = {}
    for task, stream in zip(placement.graph.tasks, placement.stream, strict=True):
        if task.name in labels:
            on.setdefault(stream, {})[labels[task.name]] = None
    count = len(dict.fromkeys(labels.values()))
    for stream, names in sorted(on.items()):
        if len(names) > 1:
            diagnostics.warn(
                "labels-share-a-stream",
                f"{count} stream labels are on {placement.used} streams: "
                f"{', '.join(map(repr, names))} share stream {stream}",
                "use fewer labels, or more streams (--streams)",
            )
