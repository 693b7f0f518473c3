"""Trace files for Perfetto, chrome://tracing and MindStudio Insight (Chrome's JSON format).

What their importers insist on, and what is done about it: complete events of one thread must
nest, so all instants are whole nanoseconds and one task ends before the next starts; a clock at
0 is dropped by some, so it starts at 1 us; flows are keyed by category, name and id, and text
ids are read as hexadecimal, so ids are numbers; process and thread ids stay small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.timeline import Span, Timeline, Usage

START_NS = 1000
"""Where the trace's clock stands when the timeline's is 0."""

MAX_POINTS = 20_000
"""Points of a counter; a longer curve is thinned to means over equal times."""

_SYNC = {"name": "sync", "cat": "StreamSync"}
_COUNTER_TRACKS = 1_000_000

Event = dict[str, object]


def write_trace(timeline: Timeline, schedule: Schedule) -> str:
    """The timeline as JSON text: ``{"traceEvents": [...], "displayTimeUnit": "ns"}``.

    One process per card, one thread per stream, a complete event per task, an arrow per sync,
    a counter per resource (percent of capacity). Times are microseconds of which the three
    decimals are exact nanoseconds. One event a line, the same text for the same timeline.
    """
    lines = [json.dumps(e, allow_nan=False) for e in trace_events(timeline, schedule)]
    body = ",\n".join(lines)
    return f'{{"displayTimeUnit": "ns", "traceEvents": [\n{body}\n]}}\n'


def trace_events(timeline: Timeline, schedule: Schedule) -> Iterator[Event]:
    """The events in the order in which they are written."""
    ranks = sorted({s.rank for s in timeline.spans})
    yield from _metadata(timeline, ranks)
    for spans in timeline.streams.values():
        for span in spans:
            yield _task(span, timeline, schedule)
    yield from _arrows(timeline)
    for usage in timeline.usage:
        yield from _counter(usage, timeline.makespan_ns, ranks)


def _us(ns: int) -> float:
    """Microseconds on the trace's clock; below 2**53 ns its three decimals are exact."""
    return (ns + START_NS) / 1000


def _pid(rank: int) -> int:
    return rank + 1


def _metadata(timeline: Timeline, ranks: list[int]) -> Iterator[Event]:
    for order, rank in enumerate(ranks):
        title = timeline.device or "device"
        title = f"rank {rank}: {title}" if len(ranks) > 1 else title
        yield _meta("process_name", rank, 0, name=title)
        yield _meta("process_labels", rank, 0, labels="NPU")
        yield _meta("process_sort_index", rank, 0, sort_index=order)
    for rank, stream in timeline.streams:
        yield _meta("thread_name", rank, stream, name=f"Stream {stream}")
        yield _meta("thread_sort_index", rank, stream, sort_index=stream)
    if any(not _owner(u.resource, ranks)[1] for u in timeline.usage):
        yield _meta("process_name", _COUNTER_TRACKS, 0, name="links")
        yield _meta("process_sort_index", _COUNTER_TRACKS, 0, sort_index=len(ranks))


def _meta(name: str, rank: int, tid: int, /, **args: object) -> Event:
    return {"name": name, "ph": "M", "pid": _pid(rank), "tid": tid, "args": args}


def _task(span: Span, timeline: Timeline, schedule: Schedule) -> Event:
    return {
        "name": span.name,
        "cat": "kernel",
        "ph": "X",
        "pid": _pid(span.rank),
        "tid": span.stream,
        "ts": _us(span.start_ns),
        "dur": span.duration_ns / 1000,
        "args": _arguments(span, timeline, schedule.tasks[span.task]),
    }


def _arguments(span: Span, timeline: Timeline, task: Task) -> Event:
    demand = task.demand
    args: Event = {
        "task": span.task,
        "op": span.op_type,
        "kind": task.kind,
        "ops": list(task.ops),
        "reads": list(task.reads),
        "writes": list(task.writes),
        "bytes": demand.load_bytes + demand.store_bytes,
        "load_bytes": demand.load_bytes,
        "store_bytes": demand.store_bytes,
        "l2_bytes": demand.l2_bytes,
        "cube_core_us": demand.cube_us,
        "vector_core_us": demand.vector_us,
        "bound_by": span.bound_by,
        "alone_us": span.alone_ns / 1000,
        "wait_us": span.wait_ns / 1000,
        "wait_cause": span.wait_cause,
    }
    if span.waited_for is not None:
        args["waited_for"] = timeline.spans[span.waited_for].name
    if task.group:
        args["group"] = task.group
    if task.communicator:
        args["communicator"] = task.communicator
    return args


def _arrows(timeline: Timeline) -> Iterator[Event]:
    """From within the producer's last nanosecond to the consumer's start, one id each."""
    for number, (producer, consumer) in enumerate(timeline.events, start=1):
        source, target = timeline.spans[producer], timeline.spans[consumer]
        leaves = max(source.start_ns, source.end_ns - 1)
        yield {**_SYNC, "ph": "s", "id": number, **_place(source), "ts": _us(leaves)}
        yield {
            **_SYNC,
            "ph": "f",
            "bp": "e",
            "id": number,
            **_place(target),
            "ts": _us(target.start_ns),
        }


def _place(span: Span) -> Event:
    return {"pid": _pid(span.rank), "tid": span.stream}


def _owner(resource: str, ranks: list[int]) -> tuple[str, int]:
    """The resource's plain name and its process, 0 for a link, which lies between cards."""
    rank, colon, name = resource.partition(":")
    if colon and rank.isdigit():
        return name, _pid(int(rank))
    if resource in ("cube", "vector", "hbm", "l2"):
        return resource, _pid(ranks[0]) if ranks else 1
    return resource, 0


def _counter(usage: Usage, until_ns: int, ranks: list[int]) -> Iterator[Event]:
    name, pid = _owner(usage.resource, ranks)
    last: float | None = None
    for time, part in _thinned(usage, until_ns):
        value = round(100 * part, 3)
        if value == last:
            continue
        last = value
        yield {
            "name": f"{name} (%)",
            "ph": "C",
            "pid": pid or _pid(_COUNTER_TRACKS),
            "tid": 0,
            "ts": _us(time),
            "args": {"in use": value},
        }


def _thinned(usage: Usage, until_ns: int) -> Iterator[tuple[int, float]]:
    """The curve, or its means over `MAX_POINTS` equal times where it has more points. O(points)."""
    times, parts = usage.times_ns, usage.fractions
    if len(times) <= MAX_POINTS or until_ns <= MAX_POINTS:
        yield from zip(times, parts, strict=True)
        return
    width = -(-until_ns // MAX_POINTS)
    bucket, area = 0, 0.0
    for i, part in enumerate(parts):
        start, end = times[i], times[i + 1] if i + 1 < len(times) else max(until_ns, times[i])
        while end >= (bucket + 1) * width:
            edge = (bucket + 1) * width
            yield bucket * width, (area + part * (edge - start)) / width
            bucket, area, start = bucket + 1, 0.0, edge
        area += part * (end - start)
    yield bucket * width, area / width
    yield until_ns, parts[-1] if times[-1] >= until_ns else 0.0
