"""How the device's queues hold streams: cut where a queue is full, as the graph engine cuts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeEvaluator, FakeTarget, random_graph, task_graph

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.schedule import PhysicalStream, Schedule
from gecompiler.ir.schedule_json import from_json, to_json
from gecompiler.passes.scheduling.schedule_builder import (
    ScheduleOptions,
    UserControl,
    build_schedule,
)
from gecompiler.passes.streams.evaluation import schedule_of, synchronise
from gecompiler.passes.streams.physical import RESERVE, WAIT_ENTRIES, physical_streams
from gecompiler.passes.streams.strategy import Placement


def schedule(count: int, streams: int, edges: list[tuple[int, int]], entries: int) -> Schedule:
    graph = task_graph(count, edges)
    placement = Placement(graph, tuple(i % streams for i in range(count)), tuple(range(count)))
    target = FakeTarget().with_limits(queue_entries=entries)
    return schedule_of(synchronise(placement, target), target, "hand")


def test_a_stream_that_fits_is_one() -> None:
    assert physical_streams(schedule(10, 2, [], 1024)) == (
        PhysicalStream(0, 0, 0, 4, 5),
        PhysicalStream(1, 1, 0, 4, 5),
    )


def test_a_long_stream_is_cut_before_the_task_that_would_fill_it() -> None:
    assert physical_streams(schedule(2000, 1, [], 1024)) == (
        PhysicalStream(0, 0, 0, 996, 997),
        PhysicalStream(1, 0, 997, 1992, 997),  # the wait for the part before takes an entry
        PhysicalStream(2, 0, 1993, 1999, 8),
    )


def test_records_and_waits_take_entries() -> None:
    edges = [(i, i + 1) for i in range(0, 40, 2)]
    first, second = physical_streams(schedule(40, 2, edges, 1024))
    assert first.entries == 20 * 2
    assert second.entries == 20 * (1 + WAIT_ENTRIES)


@pytest.mark.parametrize("entries", [40, 60, 200])
def test_parts_hold_every_task_once_within_their_room(entries: int) -> None:
    made = schedule(300, 3, [(i, i + 4) for i in range(290)], entries)
    parts = physical_streams(made)
    assert [p.id for p in parts] == list(range(len(parts)))
    for (rank, stream), queue in made.streams.items():
        own = sorted((p.first, p.last) for p in parts if (p.rank, p.stream) == (rank, stream))
        assert [i for a, b in own for i in range(a, b + 1)] == list(range(len(queue)))
    assert all(p.entries <= entries - RESERVE for p in parts)
    assert [p.first for p in parts[:3]] == [0, 0, 0]  # the first parts keep the streams' numbers


def test_the_schedule_tells_and_its_file_keeps_it() -> None:
    target = FakeTarget().with_limits(queue_entries=RESERVE + 6)
    result = build_schedule(
        random_graph(1, 30, states=False),
        target,
        FakeEvaluator(target),
        ScheduleOptions(strategy="single"),
        UserControl(),
        Diagnostics(),
    )
    assert len(result.schedule.physical_streams) > 2
    assert from_json(to_json(result.schedule)) == result.schedule
    assert replace(result.schedule, physical_streams=()).findings() == []
