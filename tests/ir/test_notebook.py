"""Pictures for notebooks: every task is in them, and no name is markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import Timeline
from gecompiler.ir.notebook import MOST_LANES, WIDTH, timeline_html
from gecompiler.ir.schedule import Event, Limits, Schedule, Task
from gecompiler.ir.timeline import Span

HOSTILE = "</title><script>alert('x')</script>&\"<b>"
SVG = "{http://www.w3.org/2000/svg}"


def span(task: int, start: int, end: int, stream: int = 0, name: str = "op") -> Span:
    return Span(task, f"{name}{task}", "MatMul", 0, stream, start, end, end - start, bound_by="hbm")


def picture(timeline: Timeline) -> ET.Element:
    svg = re.search(r"<svg.*</svg>", timeline_html(timeline), re.DOTALL)
    assert svg is not None
    return ET.fromstring(svg[0])


def bars(timeline: Timeline) -> list[tuple[float, float, str]]:
    """Left, width and title of every bar."""
    return [
        (float(r.attrib["x"]), float(r.attrib["width"]), r.findtext(f"{SVG}title", ""))
        for r in picture(timeline).iter(f"{SVG}rect")
        if r.find(f"{SVG}title") is not None
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 900)), min_size=1, max_size=40))
def test_every_task_lies_in_a_bar(steps: list[tuple[int, int]]) -> None:
    spans, at = [], 0
    for task, (gap, length) in enumerate(steps):
        spans.append(span(task, at + gap, at + gap + length))
        at += gap + length
    timeline = Timeline(tuple(spans))
    counts = [int(m[1]) if (m := re.match(r"(\d+) tasks", t)) else 1 for *_, t in bars(timeline)]
    assert sum(counts) == len(spans)
    for left, width, _ in bars(timeline):
        assert left >= 0
        assert left + width <= WIDTH + 1


def test_long_timelines_stay_small() -> None:
    spans = tuple(span(i, 10 * i, 10 * i + 8) for i in range(20_000))
    text = timeline_html(Timeline(spans))
    assert len(text) < 250_000
    assert "20000 tasks on 1 stream(s)" in text


def test_streams_beyond_the_most_are_counted() -> None:
    spans = tuple(span(i, 0, 5, stream=i) for i in range(MOST_LANES + 3))
    assert "and 3 more streams" in timeline_html(Timeline(spans))


def test_names_are_escaped() -> None:
    timeline = Timeline((span(0, 0, 5, name=HOSTILE),), model=HOSTILE, device=HOSTILE)
    for text in (timeline._repr_html_(), schedule()._repr_html_()):
        assert "<script" not in text
        assert "<b>alert" not in text
    assert bars(timeline)[0][2].startswith(HOSTILE)


def test_a_resource_named_by_the_model_is_text() -> None:
    odd = replace(span(0, 0, 5), bound_by=HOSTILE)
    assert "<script" not in timeline_html(Timeline((odd,)))


def test_an_empty_timeline_says_so() -> None:
    assert "no task ran" in Timeline(())._repr_html_()


def schedule() -> Schedule:
    tasks = (
        Task(0, HOSTILE, "kernel", 0, 0),
        Task(1, "b", "kernel", 1, 0),
        Task(2, "c", "kernel", 1, 1),
    )
    limits = Limits(4, 64, 1000, 2**30, 32, 32)
    return Schedule(HOSTILE, "d", "single", tasks, (Event(0, 1, "data"),), (), limits)


def test_a_schedule_has_a_row_per_stream() -> None:
    body = schedule()._repr_html_().split("<tbody>")[1]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in body.split("</tr>")[:-1]]
    assert [row[:3] for row in rows] == [["Stream 0", "1", "0"], ["Stream 1", "2", "1"]]
    assert rows[1][3:] == ["b", "c"]
