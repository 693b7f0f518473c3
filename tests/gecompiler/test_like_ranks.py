"""Ranks that run alike are one where people read."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir.timeline import Span, Timeline
from gecompiler.like_ranks import like_ranks, ranks_text
from gecompiler.report_timeline import stream_bars


def span(rank: int, start: int, end: int, op_type: str = "MatMul", stream: int = 0) -> Span:
    return Span(start, f"{rank}:op{start}", op_type, rank, stream, start, end, end - start)


def timeline(*spans: Span) -> Timeline:
    return Timeline(tuple(replace(s, task=n) for n, s in enumerate(spans)))


@pytest.mark.parametrize(
    "other",
    [
        span(1, 5, 12),
        span(1, 5, 10, "Gelu"),
        span(1, 5, 10, stream=1),
    ],
)
def test_ranks_that_differ_in_a_time_a_type_or_a_stream_are_apart(other: Span) -> None:
    assert like_ranks(timeline(span(0, 5, 10), other, span(2, 5, 10))) == [(0, 2), (1,)]


def test_no_rank_is_no_group() -> None:
    assert like_ranks(Timeline(())) == []


def test_bars_of_like_ranks_are_one_line() -> None:
    rows = [span(rank, 0, 8000) for rank in range(12)] + [span(12, 0, 4000)]
    lines = stream_bars(timeline(*rows), 4).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Ranks0-11 Stream0", "Rank12    Stream0"]
    assert "100% busy" in lines[0]
    assert "50% busy" in lines[1]


def test_more_kinds_of_ranks_than_are_shown_are_counted() -> None:
    rows = [span(rank, 0, 1000 * (1 + rank // 2)) for rank in range(20)]
    lines = stream_bars(timeline(*rows), 4).splitlines()
    assert len(lines) == 9
    assert lines[-1] == "and 4 more ranks"


@given(st.sets(st.integers(0, 40), min_size=1))
def test_the_text_names_every_rank(found: set[int]) -> None:
    ranks = sorted(found)
    runs = ranks_text(ranks).split(",")
    ends = [tuple(map(int, run.split("-"))) for run in runs]
    assert [r for a, *b in ends for r in range(a, (b or [a])[0] + 1)] == ranks
    neighbours = groupby(enumerate(ranks), lambda row: row[1] - row[0])
    assert len(runs) == len(list(neighbours))
