"""Recorded calls as a trace for Perfetto and chrome://tracing (Chrome's JSON format).

Kernels follow each other on one stream of the device, each as soon as the one before it ends,
since their times are modelled; host calls stand where they happened. An arrow leads from each
call to its kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gecompiler.backends.counters import AttentionCounters, OperatorCall

_HOST, _NPU = 1, 2
_START_NS = 1000
"""A clock at 0 is dropped by some readers."""

Event = dict[str, object]


def trace_text(
    calls: Sequence[OperatorCall], device_name: str, *, shapes: bool, host: bool, device: bool
) -> str:
    """The trace as JSON, one event a line."""
    events = []
    if device:
        events.append(_meta("process_name", _NPU, name=device_name))
        events.append(_meta("thread_name", _NPU, name="kernels"))
    if host:
        events.append(_meta("process_name", _HOST, name="host"))
        lanes = _lanes(calls).values()
        events += [_meta("thread_name", _HOST, n, name=f"thread {n}") for n in lanes]
        events += _host_events(calls, shapes)
    if device:
        events += _npu_events(calls)
    if host and device:
        events += _arrows(calls)
    body = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    return f'{{"displayTimeUnit": "ns", "traceEvents": [\n{body}\n]}}\n'


def _meta(kind: str, pid: int, tid: int = 0, /, **args: object) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _host_events(calls: Sequence[OperatorCall], shapes: bool) -> Iterator[Event]:
    lanes = _lanes(calls)
    for call, start in zip(calls, _host_starts(calls), strict=True):
        args: Event = {"dtypes": list(call.dtypes), "bytes": call.memory_bytes}
        if shapes:
            args["Input Dims"] = [list(shape) for shape in call.shapes]
        if call.stack:
            args["stack"] = list(call.stack)
        event = _complete(call.name, "cpu_op", _HOST, start, max(1, call.host_ns), args)
        yield event | {"tid": lanes[call.thread]}


def _lanes(calls: Sequence[OperatorCall]) -> dict[int, int]:
    """A track for each thread of the host, by its first call."""
    return {thread: n for n, thread in enumerate(dict.fromkeys(c.thread for c in calls))}


def _host_starts(calls: Sequence[OperatorCall]) -> list[int]:
    first = min((call.started_ns for call in calls), default=0)
    return [call.started_ns - first for call in calls]


def _npu_spans(calls: Sequence[OperatorCall]) -> list[tuple[int, int]]:
    """Start and duration of each kernel, whole nanoseconds: after its call and the last one."""
    found, free = [], 0
    for call, issued in zip(calls, _host_starts(calls), strict=True):
        start, length = max(free, issued), max(1, round(call.counters.time_us * 1e3))
        found.append((start, length))
        free = start + length
    return found


def _npu_events(calls: Sequence[OperatorCall]) -> Iterator[Event]:
    for call, (start, length) in zip(calls, _npu_spans(calls), strict=True):
        c = call.counters
        yield _complete(call.name, "kernel", _NPU, start, length, _arguments(c))
        for stretch in c.bandwidth:
            at = start + round(stretch.start_us * 1e3)
            yield _counter("HBM (GB/s)", at, round(stretch.gb_per_s, 3))
        yield _counter("HBM (GB/s)", start + length, 0)
        yield _counter("cube (%)", start, round(100 * c.cube_utilisation, 3))
        yield _counter("cube (%)", start + length, 0)


def _arguments(c: AttentionCounters) -> Event:
    return {
        "dtype": c.dtype,
        "blocks": [c.block_q, c.block_k],
        "flops": c.flops,
        "flops_skipped": c.flops_skipped,
        "tiles": c.tiles,
        "tiles_skipped": c.tiles_skipped,
        "tiles_masked": c.tiles_masked,
        "read_bytes": dict(c.reads),
        "write_bytes": dict(c.writes),
        "sram_bytes": {b.name: [b.need, b.there] for b in c.sram},
        "cube_utilisation": round(c.cube_utilisation, 6),
        "vector_utilisation": round(c.vector_utilisation, 6),
    }


def _arrows(calls: Sequence[OperatorCall]) -> Iterator[Event]:
    lanes = _lanes(calls)
    spans = zip(calls, _host_starts(calls), _npu_spans(calls), strict=True)
    for number, (call, issued, (start, _)) in enumerate(spans, start=1):
        base: Event = {"name": "launch", "cat": "ac2g", "id": number}
        yield {**base, "ph": "s", "pid": _HOST, "tid": lanes[call.thread], "ts": _us(issued)}
        yield {**base, "ph": "f", "bp": "e", "pid": _NPU, "tid": 0, "ts": _us(start)}


def _complete(name: str, cat: str, pid: int, start: int, length: int, args: Event) -> Event:
    return {
        "name": name,
        "cat": cat,
        "ph": "X",
        "pid": pid,
        "tid": 0,
        "ts": _us(start),
        "dur": length / 1000,
        "args": args,
    }


def _counter(name: str, at: int, value: float) -> Event:
    return {
        "name": name,
        "ph": "C",
        "pid": _NPU,
        "tid": 0,
        "ts": _us(at),
        "args": {"in use": value},
    }


def _us(ns: int) -> float:
    return (ns + _START_NS) / 1000
