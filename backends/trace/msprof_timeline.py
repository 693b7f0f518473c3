"""``msprof_*.json``: the timeline in the dialect of Ascend's profiler.

The root is an array; times are text with three decimals; processes are lanes of the page
(``Ascend Hardware`` with a thread per stream, ``Communication`` with one per group, ``Overlap
Analysis`` with four), whose ids hold the host's process, the lane's place and the card.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from gecompiler.backends.trace.chrome import SYNC, Event
from gecompiler.backends.trace.msprof_rows import CardRows, Row, group_of, length, stamp
from gecompiler.backends.trace.msprof_tables import NO_MODEL
from gecompiler.backends.trace.recording import COPY, Recording, TaskFacts
from gecompiler.ir.timeline import Span

HOST_PID = 1
_HARDWARE, _COMMUNICATION, _RESOURCES, _OVERLAP = 14, 17, 18, 19
_LANES = {
    _HARDWARE: "Ascend Hardware",
    _COMMUNICATION: "Communication",
    _RESOURCES: "Resources",
    _OVERLAP: "Overlap Analysis",
}
_HCCL_TYPES = {"FLOAT": "FP32", "FLOAT16": "FP16", "DT_BF16": "BFP16", "BFLOAT16": "BFP16"}
RECORD_NS = 20
"""How long recording an event takes in real captures."""


def timeline_events(recording: Recording, rows: CardRows) -> Iterator[Event]:
    """The events of one card, in the order in which they are written."""
    points = [p for p in recording.points() if p.rank == rows.rank]
    yield from _metadata(rows, resources=bool(points))
    for row in rows.rows:
        yield _task(row)
    yield from _syncs(recording, rows)
    for group, row in ((rows.groups[group_of(r)], r) for r in rows.collectives):
        yield _collective(row, _pid(_COMMUNICATION, rows.rank), group)
    for thread, (name, intervals) in enumerate(rows.lanes.named()):
        place = {"pid": _pid(_OVERLAP, rows.rank), "tid": thread}
        for start, end in intervals:
            yield {"name": name, **place, **_times(start, end), "ph": "X"}
    for point in points:
        yield {
            "name": f"{point.resource} (%)", "pid": _pid(_RESOURCES, rows.rank), "tid": 0,
            "ts": stamp(point.time_ns), "ph": "C", "args": {"in use": point.percent},
        }  # fmt: skip


def _pid(lane: int, rank: int) -> int:
    """(host process << 10) | (lane << 5) | card, as the profiler makes it."""
    return ((HOST_PID + rank // 31 & 0x3FFFFF) << 10) | (lane << 5) | rank % 31


def _metadata(rows: CardRows, *, resources: bool) -> Iterator[Event]:
    streams = sorted({row.span.stream for row in rows.rows})
    threads = {
        _HARDWARE: [(s, f"Stream {s}") for s in streams],
        _COMMUNICATION: [(n, f"Group {n} Communication") for n in rows.groups.values()],
        _OVERLAP: [(n, name) for n, (name, _) in enumerate(rows.lanes.named())],
    }
    for lane, name in _LANES.items():
        if (lane == _RESOURCES and not resources) or (lane in threads and not threads[lane]):
            continue
        at = {"ph": "M", "pid": _pid(lane, rows.rank)}
        yield {"name": "process_name", **at, "tid": 0, "args": {"name": name}}
        yield {
            "name": "process_labels", **at, "tid": 0, "args": {"labels": f"NPU {rows.rank}"},
        }  # fmt: skip
        yield {"name": "process_sort_index", **at, "tid": 0, "args": {"sort_index": lane}}
        for tid, title in threads.get(lane, ()):
            yield {"name": "thread_name", **at, "tid": tid, "args": {"name": title}}
            yield {"name": "thread_sort_index", **at, "tid": tid, "args": {"sort_index": tid}}


def _times(start_ns: int, end_ns: int) -> Event:
    return {"ts": stamp(start_ns), "dur": float(length(end_ns - start_ns))}


def _task(row: Row) -> Event:
    span, kind = row.span, row.facts.task_type
    args = _args(span.task, span.stream, kind)
    if kind == COPY:
        args["data size(Byte)"] = round(row.task.demand.load_bytes + row.task.demand.store_bytes)
    return {
        "name": span.name, "pid": _pid(_HARDWARE, span.rank), "tid": span.stream,
        **_times(span.start_ns, span.end_ns), "args": args, "ph": "X",
    }  # fmt: skip


def _args(task: int, stream: int, kind: str) -> Event:
    return {
        "Model Id": NO_MODEL, "Task Type": kind, "Physic Stream Id": stream, "Task Id": task,
        "Batch Id": 0, "Subtask Id": NO_MODEL,
    }  # fmt: skip


def _collective(row: Row, pid: int, group: int) -> Event:
    size = sum(count for _, count in row.task.demand.link_bytes)
    args: Event = {"model id": NO_MODEL, **_elements(row.facts)}
    args |= {"group": row.task.communicator, "size(Byte)": round(size)}
    return {
        "name": row.span.name, "pid": pid, "tid": group,
        **_times(row.span.start_ns, row.span.end_ns),
        "args": args, "ph": "X",
    }  # fmt: skip


def _elements(facts: TaskFacts) -> Event:
    """What a collective is of: the type and the number of its elements, where they are known."""
    for found in (facts.inputs, facts.outputs):
        if found.types and found.shapes:
            sizes = [n for n in found.shapes[0].split(",") if n.isdigit()]
            kind = found.types[0]
            return {"data_type": _HCCL_TYPES.get(kind, kind), "count": math.prod(map(int, sizes))}
    return {}


def _syncs(recording: Recording, rows: CardRows) -> Iterator[Event]:
    """Records and waits in the gaps of their streams, and an arrow for each wait."""
    gap_before, gap_after = _gaps(rows)
    arrows = [a for a in recording.arrows() if a.source.rank == a.target.rank == rows.rank]
    # A record may lie where the next task's waits begin: these start after it.
    begins: dict[int, int] = {}
    for producer in {a.source.task: a.source for a in arrows}.values():
        end = min(producer.end_ns + RECORD_NS, gap_after.get(producer.task, producer.end_ns + 20))
        yield _sync("EVENT_RECORD", producer, producer.end_ns, end)
        begins[producer.task] = end
    for consumer, group in _by_consumer(recording, rows).items():
        before, cursor = gap_before[consumer.task]
        cursor = begins.get(before, cursor) if before is not None else cursor
        for released in sorted(end for _, end in group):
            end = min(max(cursor, released), consumer.start_ns)
            yield _sync("EVENT_WAIT", consumer, cursor, end)
            cursor = end
    for arrow in arrows:
        flow: Event = {**SYNC, "id": arrow.number}
        yield {**flow, "ph": "s", "ts": stamp(arrow.leaves_ns), **_place(arrow.source)}
        end_of_it: Event = {**flow, "ph": "f", "bp": "e", "ts": stamp(arrow.arrives_ns)}
        yield end_of_it | _place(arrow.target)


def _place(span: Span) -> Event:
    return {"pid": _pid(_HARDWARE, span.rank), "tid": span.stream}


def _by_consumer(recording: Recording, rows: CardRows) -> dict[Span, list[tuple[int, int]]]:
    spans = recording.timeline.spans
    found: dict[Span, list[tuple[int, int]]] = defaultdict(list)
    for producer, consumer in recording.timeline.events:
        if spans[consumer].rank == rows.rank:
            found[spans[consumer]].append((producer, spans[producer].end_ns))
    return found


def _sync(name: str, span: Span, start_ns: int, end_ns: int) -> Event:
    return {
        "name": name, "pid": _pid(_HARDWARE, span.rank), "tid": span.stream,
        **_times(start_ns, end_ns), "args": _args(span.task, span.stream, f"{name}_SQE"),
        "ph": "X",
    }  # fmt: skip


def _gaps(rows: CardRows) -> tuple[dict[int, tuple[int | None, int]], dict[int, int]]:
    """Of each task the one before it on its stream and when that ends; when the next starts."""
    before: dict[int, tuple[int | None, int]] = {}
    after: dict[int, int] = {}
    last: dict[int, Span] = {}
    for row in rows.rows:
        span = row.span
        previous = last.get(span.stream)
        before[span.task] = (None, 0) if previous is None else (previous.task, previous.end_ns)
        if previous is not None:
            after[previous.task] = span.start_ns
        last[span.stream] = span
    return before, after
