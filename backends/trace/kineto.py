"""The JSON of PyTorch's profiler (Kineto), as HolisticTraceAnalysis reads it: a file per rank.

Its reader insists on: an object as root; ``"rank": 3`` in ``distributedInfo`` found by a regular
expression that wants a blank after the colon, near the file's beginning; a category and a
duration in every event; a launch on the host with the correlation of every kernel; kernels of
collectives named ``nccl...Kernel...`` and copies ``Memcpy ...``. A simulated device whose tasks
the device issues has no launches, so each is put on the host's thread just before its task may
run: as long as a nanosecond, in the order in which tasks start.

HolisticTraceAnalysis rounds times to whole microseconds, which leaves nothing of short kernels,
where its column of times holds only floats. Events here never overlap, which is what it rounds
for: so the first metadata event, which it drops afterwards, has its time as a string, as msprof's
have. Its figures are then those of ``step_trace_time.csv``, with no environment variable set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gecompiler.backends.trace.chrome import SYNC, Event, arguments
from gecompiler.backends.trace.recording import (
    COMMUNICATION,
    COPY,
    START_NS,
    Arrow,
    Recording,
)
from gecompiler.ir.timeline import Span

_MISLEADING = re.compile(r"^nccl|^dma|Memcpy|Memset|Sync")

HOST_PID, HOST_TID = 1_000_000, 1
"""The host's process and thread; a device's process is its rank, its threads its streams."""


def kineto_files(recording: Recording) -> dict[str, str]:
    """``kineto/rank<r>.pt.trace.json`` for each rank, by path."""
    ranks = recording.ranks or [0]
    return {f"kineto/rank{r}.pt.trace.json": _file(recording, r, len(ranks)) for r in ranks}


def _file(recording: Recording, rank: int, world: int) -> str:
    head = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": max(world, rank + 1)},
        "deviceProperties": [{"id": rank, "name": recording.timeline.device or "device"}],
        "displayTimeUnit": "ns",
    }
    fields = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    body = ",\n".join(json.dumps(e, allow_nan=False) for e in _events(recording, rank))
    return f'{{\n{fields},\n"traceEvents": [\n{body}\n]\n}}\n'


def _events(recording: Recording, rank: int) -> Iterator[Event]:
    spans = sorted(
        (s for s in recording.timeline.spans if s.rank == rank),
        key=lambda s: (s.start_ns, s.stream, s.task),
    )
    offset = START_NS + len(spans) + 1  # room for the launches of tasks that start at 0
    yield from _names(rank, sorted({s.stream for s in spans}))
    yield from _step(recording, rank, spans, offset)
    cursor = START_NS
    for span in spans:
        cursor = max(cursor + 1, span.start_ns + offset - len(spans) - 1)
        yield from _launch(recording, span, cursor, offset)
    for point in recording.points():
        if point.rank == rank:
            yield {
                "ph": "C", "name": f"{point.resource} (%)", "pid": rank, "tid": 0,
                "ts": (point.time_ns + offset) / 1000, "args": {"in use": point.percent},
            }  # fmt: skip
    for arrow in recording.arrows():
        if arrow.source.rank == arrow.target.rank == rank:
            yield from _arrow(arrow, len(spans), offset)


def _names(rank: int, streams: list[int]) -> Iterator[Event]:
    for pid, tid, key, name in (
        (HOST_PID, 0, "process_name", "host"),
        (HOST_PID, HOST_TID, "thread_name", "launches"),
        (rank, 0, "process_name", f"device {rank}"),
        *((rank, s, "thread_name", f"stream {s}") for s in streams),
    ):
        yield {
            "ph": "M", "ts": "0", "name": key, "pid": pid, "tid": tid, "args": {"name": name},
        }  # fmt: skip


def _step(recording: Recording, rank: int, spans: list[Span], offset: int) -> Iterator[Event]:
    if not spans:
        return
    last = max(s.end_ns for s in spans) + offset
    yield {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{recording.step}",
        "pid": HOST_PID, "tid": HOST_TID, "ts": START_NS / 1000,
        "dur": (last - START_NS + 1) / 1000, "args": {"rank": rank},
    }  # fmt: skip


def _launch(recording: Recording, span: Span, at: int, offset: int) -> Iterator[Event]:
    """The host's launch, the device's task, and the arrow between them."""
    task = recording.schedule.tasks[span.task]
    kind = recording.facts_of(task).task_type
    correlation = span.task + 1
    copies = kind == COPY
    yield {
        "ph": "X", "cat": "cuda_runtime", "pid": HOST_PID, "tid": HOST_TID,
        "name": "cudaMemcpyAsync" if copies else "cudaLaunchKernel",
        "ts": at / 1000, "dur": 0.001, "args": {"correlation": correlation},
    }  # fmt: skip
    yield {
        "ph": "X", "cat": "gpu_memcpy" if copies else "kernel", "name": _name(span, kind),
        "pid": span.rank, "tid": span.stream,
        "ts": (span.start_ns + offset) / 1000, "dur": span.duration_ns / 1000,
        "args": {
            "device": span.rank, "stream": span.stream, "correlation": correlation,
            **arguments(span, recording, task),
        },
    }  # fmt: skip
    flow: Event = {"cat": "ac2g", "name": "ac2g", "id": correlation}
    yield {**flow, "ph": "s", "pid": HOST_PID, "tid": HOST_TID, "ts": at / 1000}
    yield {
        **flow, "ph": "f", "bp": "e", "pid": span.rank, "tid": span.stream,
        "ts": (span.start_ns + offset) / 1000,
    }  # fmt: skip


def _name(span: Span, kind: str) -> str:
    if kind == COMMUNICATION:
        return f"ncclDevKernel_{span.op_type or 'Collective'} {span.name}"
    if kind == COPY:
        return f"Memcpy DtoD {span.name}"
    if _MISLEADING.search(span.name):
        # Its own name would have it counted as a collective, a copy or a sync.
        safe = "" if _MISLEADING.search(span.op_type) else span.op_type
        return f"kernel {safe} {span.task}"
    return span.name


def _arrow(arrow: Arrow, first: int, offset: int) -> Iterator[Event]:
    flow: Event = {**SYNC, "id": first + arrow.number}
    leaves, arrives = (arrow.leaves_ns + offset) / 1000, (arrow.arrives_ns + offset) / 1000
    yield {**flow, "ph": "s", **_place(arrow.source), "ts": leaves}
    yield {**flow, "ph": "f", "bp": "e", **_place(arrow.target), "ts": arrives}


def _place(span: Span) -> Event:
    return {"pid": span.rank, "tid": span.stream}
