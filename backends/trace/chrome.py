"""Trace files for Perfetto, chrome://tracing and MindStudio Insight (Chrome's JSON format).

What their importers insist on, and what is done about it: complete events of one thread must
nest, so all instants are whole nanoseconds and one task ends before the next starts; a clock at
0 is dropped by some, so it starts at 1 us; flows are keyed by category, name and id, and text
ids are read as hexadecimal, so ids are numbers; process and thread ids stay small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from gecompiler.backends.trace.recording import START_NS, Arrow, Point, Recording
from gecompiler.ir.schedule import Schedule, Task
from gecompiler.ir.timeline import Span, Timeline

SYNC = {"name": "sync", "cat": "StreamSync"}
"""What an arrow between streams is called: no profiler has such, so users can hide it."""

_COUNTER_TRACKS = 1_000_000

Event = dict[str, object]


def write_trace(timeline: Timeline, schedule: Schedule) -> str:
    """`chrome_text` of a timeline and its schedule."""
    return chrome_text(Recording(timeline, schedule))


def chrome_text(recording: Recording) -> str:
    """The timeline as JSON text: ``{"traceEvents": [...], "displayTimeUnit": "ns"}``.

    One process per card, one thread per stream, a complete event per task, an arrow per sync,
    a counter per resource (percent of capacity). Times are microseconds of which the three
    decimals are exact nanoseconds. One event a line, the same text for the same timeline.
    """
    body = ",\n".join(json.dumps(e, allow_nan=False) for e in trace_events(recording))
    return f'{{"displayTimeUnit": "ns", "traceEvents": [\n{body}\n]}}\n'


def trace_events(recording: Recording) -> Iterator[Event]:
    """The events in the order in which they are written."""
    timeline, tasks = recording.timeline, recording.schedule.tasks
    yield from _metadata(recording)
    for spans in timeline.streams.values():
        for span in spans:
            yield _task(span, recording, tasks[span.task])
    for arrow in recording.arrows():
        yield from _arrow(arrow)
    for point in recording.points():
        yield _counter(point)


def us(ns: int) -> float:
    """Microseconds on the trace's clock; below 2**53 ns its three decimals are exact."""
    return (ns + START_NS) / 1000


def _pid(rank: int) -> int:
    return rank + 1


def _metadata(recording: Recording) -> Iterator[Event]:
    timeline, ranks = recording.timeline, recording.ranks
    for order, rank in enumerate(ranks):
        title = timeline.device or "device"
        title = f"rank {rank}: {title}" if len(ranks) > 1 else title
        yield _meta("process_name", rank, 0, name=title)
        yield _meta("process_labels", rank, 0, labels="NPU")
        yield _meta("process_sort_index", rank, 0, sort_index=order)
    for rank, stream in timeline.streams:
        yield _meta("thread_name", rank, stream, name=f"Stream {stream}")
        yield _meta("thread_sort_index", rank, stream, sort_index=stream)
    if any(point.rank is None for point in recording.points()):
        yield _meta("process_name", _COUNTER_TRACKS, 0, name="links")
        yield _meta("process_sort_index", _COUNTER_TRACKS, 0, sort_index=len(ranks))


def _meta(name: str, rank: int, tid: int, /, **args: object) -> Event:
    return {"name": name, "ph": "M", "pid": _pid(rank), "tid": tid, "args": args}


def _task(span: Span, recording: Recording, task: Task) -> Event:
    return {
        "name": span.name,
        "cat": "kernel",
        "ph": "X",
        "pid": _pid(span.rank),
        "tid": span.stream,
        "ts": us(span.start_ns),
        "dur": span.duration_ns / 1000,
        "args": arguments(span, recording, task),
    }


def arguments(span: Span, recording: Recording, task: Task) -> Event:
    """What a viewer shows when a task is chosen."""
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
        args["waited_for"] = recording.timeline.spans[span.waited_for].name
    if task.group:
        args["group"] = task.group
    if task.communicator:
        args["communicator"] = task.communicator
    facts = recording.facts.get(span.task)
    if facts is not None:
        args["task_type"] = facts.task_type
        for side, tensors in (("input", facts.inputs), ("output", facts.outputs)):
            if tensors.shapes:
                args[f"{side}_shapes"] = ";".join(tensors.shapes)
                args[f"{side}_types"] = ";".join(tensors.types)
    return args


def _arrow(arrow: Arrow) -> Iterator[Event]:
    """From within the producer's last nanosecond to the consumer's start, one id each."""
    number = {"id": arrow.number}
    yield {**SYNC, "ph": "s", **number, **_place(arrow.source), "ts": us(arrow.leaves_ns)}
    end: Event = {**SYNC, "ph": "f", "bp": "e", **number, **_place(arrow.target)}
    yield {**end, "ts": us(arrow.arrives_ns)}


def _place(span: Span) -> Event:
    return {"pid": _pid(span.rank), "tid": span.stream}


def _counter(point: Point) -> Event:
    return {
        "name": f"{point.resource} (%)",
        "ph": "C",
        "pid": _pid(_COUNTER_TRACKS if point.rank is None else point.rank),
        "tid": 0,
        "ts": us(point.time_ns),
        "args": {"in use": point.percent},
    }
