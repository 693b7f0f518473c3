"""Rules of trace formats as their readers enforce them, and a small run on two cards."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections import defaultdict
from decimal import Decimal
from typing import Any

from gecompiler.backends.device import load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.backends.trace import Recording
from gecompiler.ir.schedule import Demand, Event, Schedule, Task

DEVICE = load_device("ascend910")
UINT32 = 2**32

Events = list[dict[str, Any]]


def recording(ranks: int = 2, streams: int = 2, length: int = 6) -> Recording:
    """Kernels of all kinds, a copy and a collective on each card, waits between streams."""
    tasks: list[Task] = []
    events: list[Event] = []
    for rank in range(ranks):
        first = len(tasks)
        for order in range(length):
            for stream in range(streams):
                talks = order == 2 and stream == 1 and ranks > 1
                copies = order == 1 and stream == 0
                demand = Demand(
                    load_bytes=1e6 * (order + 1) + 12345.678 * stream,
                    store_bytes=3e5,
                    l2_bytes=2e6,
                    vector_us=0 if copies or order == 3 else 50 + stream,
                    vector_cores=0 if copies or order == 3 else 32,
                    cube_us=70.5 if order >= 3 else 0,
                    cube_cores=24 if order >= 3 else 0,
                    fixed_us=0.1234567 * order,
                    tiles=3,
                    link_bytes=(("hccs:0-1", 1e5),) if talks else (),
                )
                kind = "collective" if talks else "load" if copies else "kernel"
                op_type = "AllReduce" if talks else "Load" if copies else f"Op{order % 2}"
                tasks.append(
                    Task(
                        len(tasks), f'r{rank} 层{order}/"x,{stream}\n', kind, stream, order,
                        op_type=op_type, demand=demand, rank=rank,
                        communicator="tp" if talks else "",
                    )  # type: ignore[arg-type]
                )  # fmt: skip
        if streams > 1:
            events += [
                Event(first + order * streams, first + (order + 2) * streams - 1, "data")
                for order in range(length - 1)
            ]
    plan = Schedule("m", "ascend910", "s", tuple(tasks), tuple(events), (), DEVICE.limits)
    return Recording(Simulator(DEVICE)(plan), plan)


def empty() -> Recording:
    """A run of nothing."""
    found = recording(1, 1, 1)
    plan = dataclasses.replace(found.schedule, tasks=(), events=())
    return Recording(Simulator(DEVICE)(plan), plan)


def parse(text: str) -> Any:
    """JSON with exact numbers and without NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON number")

    return json.loads(text, parse_float=Decimal, parse_constant=refuse)


def table(text: str) -> list[dict[str, str]]:
    """The rows of a csv by column; every row as long as the header."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert all(len(row) == len(rows[0]) for row in rows)
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def ns(value: Any) -> int:
    """Microseconds as ns; no fraction of one may be left."""
    found = Decimal(str(value)) * 1000
    assert found == int(found), f"{value} us is no whole number of ns"
    return int(found)


def check_nesting(events: Events) -> None:
    """On one thread, complete events contain each other or are apart."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, length = ns(event["ts"]), ns(event["dur"])
            assert start > 0, "a clock at 0 is dropped"
            assert length >= 0
            tracks[event["pid"], event["tid"]].append((start, start + length))
    for spans in tracks.values():
        spans.sort(key=lambda s: (s[0], -s[1]))
        open_ends: list[int] = []
        for start, end in spans:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], "two events cross"
            open_ends.append(end)


def check_flows(events: Events) -> None:
    """Both ends of every flow, on a slice of their thread, forward in time, one type of id."""
    ends: dict[tuple[Any, str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    kinds = set()
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"])
            slices[event["pid"], event["tid"]].append((start, start + ns(event["dur"])))
        elif event["ph"] in "sf":
            kinds.add(type(event["id"]))
            pair = ends[event["id"], event["cat"], event["name"]]
            assert event["ph"] not in pair, "an id is used twice"
            pair[event["ph"]] = event
    assert len(kinds) <= 1
    for pair in ends.values():
        assert set(pair) == {"s", "f"}
        assert pair["f"]["bp"] == "e"
        assert ns(pair["s"]["ts"]) <= ns(pair["f"]["ts"])
        for event in pair.values():
            at = ns(event["ts"])
            assert any(a <= at <= b for a, b in slices[event["pid"], event["tid"]])


def check_ids(events: Events) -> None:
    """Process and thread ids are small numbers, and every one used is named."""
    named: dict[str, set[Any]] = {"process_name": set(), "thread_name": set()}
    for event in events:
        for key in ("pid", "tid"):
            assert isinstance(event[key], int)
            assert 0 <= event[key] < UINT32
        if event["ph"] == "M" and event["name"] == "process_name":
            named["process_name"].add(event["pid"])
        if event["ph"] == "M" and event["name"] == "thread_name":
            named["thread_name"].add((event["pid"], event["tid"]))
    assert {e["pid"] for e in events} <= named["process_name"]
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named["thread_name"]


INSIGHT = {
    "timeline": re.compile(r"msprof_\d{1,14}\.json"),
    "operators": re.compile(r"op_summary_\d{1,14}\.csv"),
}
"""The names by which MindStudio Insight chooses a parser."""

INSIGHT_COLUMNS = {
    *("OP Type", "Op Name", "Task Duration(us)", "Task Start Time(us)", "Task Type"),
    *("Task Wait Time(us)", "Block Num"),
}
"""The columns without which it does not open a table of operators."""
