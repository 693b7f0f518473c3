"""Trace files, checked by a validator written from the formats' rules."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.backends.trace import recording, write_trace
from gecompiler.ir.schedule import Demand, Event, Schedule, Task
from gecompiler.ir.timeline import Timeline, Usage

DEVICE = load_device("ascend910")
UINT32 = 2**32


def make(ranks: int = 1, streams: int = 2, length: int = 5) -> Schedule:
    tasks: list[Task] = []
    events: list[Event] = []
    for rank in range(ranks):
        first = len(tasks)
        for order in range(length):
            for stream in range(streams):
                demand = Demand(
                    load_bytes=1e6 * (order + 1) + 12345.678 * stream,
                    store_bytes=3e5,
                    l2_bytes=2e6,
                    vector_us=50 + stream,
                    vector_cores=32,
                    fixed_us=0.1234567 * order,
                    tiles=3,
                    link_bytes=(("hccs:0-1", 1e5),) if ranks > 1 and order == 1 else (),
                )
                name = f'r{rank} 层{order}/"x\\{stream}'
                tasks.append(
                    Task(
                        len(tasks),
                        name,
                        "kernel",
                        stream,
                        order,
                        op_type="Add",
                        demand=demand,
                        rank=rank,
                    )
                )
        events += [
            Event(first + order * streams, first + (order + 2) * streams - 1, "data")
            for order in range(length - 1)
        ]
    return Schedule("m", "ascend910", "s", tuple(tasks), tuple(events), (), DEVICE.limits)


def traced(plan: Schedule) -> tuple[Timeline, list[dict[str, Any]]]:
    timeline = Simulator(DEVICE)(plan)
    text = write_trace(timeline, plan)
    data = json.loads(text, parse_float=Decimal, parse_constant=refuse)
    assert data["displayTimeUnit"] == "ns"
    return timeline, data["traceEvents"]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON number")


def exact_ns(value: Any) -> int:
    ns = Decimal(value) * 1000
    assert ns == int(ns), f"{value} us is no whole number of ns"
    return int(ns)


def validate(events: list[dict[str, Any]]) -> None:
    """The rules of Chrome's trace format as Perfetto and MindStudio Insight enforce them."""
    for event in events:
        assert event["ph"] in ("M", "X", "s", "f", "C")
        assert isinstance(event["name"], str)
        assert event["name"]
        for key in ("pid", "tid"):
            assert isinstance(event[key], int)
            assert 0 <= event[key] < UINT32
        if event["ph"] != "M":
            assert exact_ns(event["ts"]) > 0
        if event["ph"] in "MC":
            assert isinstance(event["args"], dict)
        if event["ph"] == "C":
            assert all(isinstance(v, int | Decimal) for v in event["args"].values())
    tracks = validate_nesting(events)
    validate_names(events, tracks)
    validate_flows(events, tracks)


Tracks = dict[tuple[int, int], list[tuple[int, int]]]


def validate_nesting(events: list[dict[str, Any]]) -> Tracks:
    tracks: Tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, length = exact_ns(event["ts"]), exact_ns(event["dur"])
            assert length >= 0
            tracks[event["pid"], event["tid"]].append((start, start + length))
    for spans in tracks.values():
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            assert end <= begin
    return tracks


def validate_names(events: list[dict[str, Any]], tracks: Tracks) -> None:
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {e["pid"] for e in events} <= processes
    assert set(tracks) <= threads


def validate_flows(events: list[dict[str, Any]], tracks: Tracks) -> None:
    flows: dict[tuple[int, str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert isinstance(event["id"], int)
            ends = flows[event["id"], event["cat"], event["name"]]
            assert event["ph"] not in ends, "an id is used twice"
            ends[event["ph"]] = event
    for pair in flows.values():
        assert set(pair) == {"s", "f"}
        assert pair["f"]["bp"] == "e"
        assert exact_ns(pair["s"]["ts"]) <= exact_ns(pair["f"]["ts"])
        for event in pair.values():
            at = exact_ns(event["ts"])
            assert any(b <= at <= e for b, e in tracks[event["pid"], event["tid"]])


@pytest.mark.parametrize(("ranks", "streams"), [(1, 1), (1, 4), (3, 2)])
def test_traces_follow_the_rules(ranks: int, streams: int) -> None:
    plan = make(ranks, streams)
    if streams == 1:
        plan = dataclasses.replace(plan, events=())
    timeline, events = traced(plan)
    validate(events)
    kernels = [e for e in events if e["ph"] == "X"]
    assert len(kernels) == len(plan.tasks)
    assert len({e["pid"] for e in kernels}) == ranks
    assert sum(e["ph"] == "s" for e in events) == len(plan.events)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for event, span in zip(
        sorted(kernels, key=lambda e: e["args"]["task"]), timeline.spans, strict=True
    ):
        assert event["name"] == span.name
        assert exact_ns(event["ts"]) == span.start_ns + 1000
        assert exact_ns(event["dur"]) == span.duration_ns
        assert names[event["pid"], event["tid"]] == f"Stream {span.stream}"
        assert event["args"]["bound_by"] == span.bound_by
        if span.waited_for is not None:
            assert event["args"]["waited_for"] == timeline.spans[span.waited_for].name
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert {"hbm (%)", "vector (%)"} <= counters


def test_the_same_timeline_gives_the_same_text() -> None:
    plan = make()
    timeline = Simulator(DEVICE)(plan)
    assert write_trace(timeline, plan) == write_trace(Simulator(DEVICE)(plan), plan)


def test_an_empty_timeline_is_a_valid_trace() -> None:
    plan = dataclasses.replace(make(), tasks=(), events=())
    validate(traced(plan)[1])


def test_counters_start_and_end_with_the_curve() -> None:
    _, events = traced(make(1, 2))
    hbm = [e for e in events if e["ph"] == "C" and e["name"] == "hbm (%)"]
    assert hbm[-1]["args"]["in use"] == 0
    assert max(e["args"]["in use"] for e in hbm) <= 100


def test_a_long_curve_is_thinned_and_keeps_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_POINTS", 10)
    times = tuple(range(0, 1900, 3))
    parts = (*tuple(i * 37 % 100 / 100 for i in range(len(times) - 1)), 0.0)
    usage = Usage("hbm", 1.0, "x", times, parts)
    timeline = dataclasses.replace(Simulator(DEVICE)(make(1, 1, 1)), usage=(usage,))
    until = timeline.makespan_ns
    assert until > 1900
    plan = dataclasses.replace(make(1, 1, 1), events=())
    data = json.loads(write_trace(timeline, plan))["traceEvents"]
    points = [(e["ts"] * 1000 - 1000, e["args"]["in use"]) for e in data if e["ph"] == "C"]
    assert len(points) <= 13
    area = sum(v * (b - a) for (a, v), (b, _) in itertools.pairwise(points))
    assert area / until == pytest.approx(100 * usage.mean(until), rel=0.01)
