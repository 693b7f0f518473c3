"""Timelines: sums and shares agree with counting nanosecond by nanosecond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir import ScheduleError, Timeline
from gecompiler.ir.timeline import Span, Usage


def span(task: int, stream: int, start: int, end: int, rank: int = 0) -> Span:
    return Span(task, f"t{task}", "MatMul", rank, stream, start, end, end - start)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    spans: list[Span] = []
    for rank in range(draw(st.integers(0, 2))):
        for stream in range(draw(st.integers(0, 3))):
            time = 0
            for _ in range(draw(st.integers(0, 4))):
                start = time + draw(st.integers(0, 5))
                time = start + draw(st.integers(0, 5))
                spans.append(span(len(spans), stream, start, time, rank))
    return Timeline(tuple(draw(st.permutations(spans))))


@given(timelines())
def test_overlap_counts_each_rank_for_itself(timeline: Timeline) -> None:
    timeline.verify()
    busy = both = 0
    for rank in {s.rank for s in timeline.spans}:
        for time in range(timeline.makespan_ns):
            running = sum(s.rank == rank and s.start_ns <= time < s.end_ns for s in timeline.spans)
            busy += running >= 1
            both += running >= 2
    assert timeline.overlap == (both / busy if busy else 0.0)


@given(timelines())
def test_streams_hold_every_span_in_time(timeline: Timeline) -> None:
    found = [s for spans in timeline.streams.values() for s in spans]
    assert sorted(s.task for s in found) == sorted(s.task for s in timeline.spans)
    assert list(timeline.streams) == sorted(timeline.streams)
    for (rank, stream), spans in timeline.streams.items():
        assert [s.start_ns for s in spans] == sorted(s.start_ns for s in spans)
        assert timeline.busy_ns(rank, stream) == sum(s.end_ns - s.start_ns for s in spans)
    assert timeline.busy_ns(9, 9) == 0


def test_two_ranks_that_work_alone_do_not_overlap() -> None:
    assert Timeline((span(0, 0, 0, 10), span(1, 0, 0, 10, rank=1))).overlap == 0
    assert Timeline((span(0, 0, 0, 10), span(1, 1, 5, 10))).overlap == 0.5


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ((span(0, 0, 0, 10), span(1, 0, 9, 12)), "task 't1' starts at 9 ns, before 10 ns"),
        ((span(0, 0, 0, 10), span(1, 0, 5, 5)), "task 't1' starts at 5 ns, before 10 ns"),
        ((span(0, 1, 7, 5),), "task 't0' starts at 7 ns and ends at 5 ns"),
        ((span(0, 0, -1, 5),), "task 't0' starts at -1 ns"),
    ],
)
def test_impossible_times_are_named(spans: tuple[Span, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message) as caught:
        Timeline(spans).verify()
    assert caught.value.where == f"rank 0, stream {spans[0].stream}"


def test_touching_and_empty_spans_are_fine() -> None:
    Timeline((span(0, 0, 0, 5), span(1, 0, 5, 5), span(2, 0, 5, 9))).verify()
    empty = Timeline(())
    empty.verify()
    assert (empty.makespan_ns, empty.overlap, empty.streams) == (0, 0.0, {})


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.25, 1.0])), max_size=5),
    st.integers(-1, 60),
)
def test_mean_usage_is_that_of_every_nanosecond(steps: list[tuple[int, float]], until: int) -> None:
    times, time = [], 0
    for gap, _ in steps:
        time += gap
        times.append(time)
    fractions = tuple(f for _, f in steps)
    usage = Usage("hbm", 1.0, "B", tuple(times), fractions)
    total = 0.0
    for now in range(max(0, until)):
        current = [f for t, f in zip(times, fractions, strict=True) if t <= now]
        total += current[-1] if current else 0.0
    assert usage.mean(until) == pytest.approx(total / until if until > 0 else 0.0)
