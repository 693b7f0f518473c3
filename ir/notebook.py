"""Timelines and schedules as still pictures and tables for notebooks: no script, no network.

Names come from model files; all of them are escaped. Text takes the notebook's own colour, so
that it is read on light and dark ground; the bars have Okabe and Ito's colours, which are told
apart with any kind of colour vision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule
    from gecompiler.ir.timeline import Span, Timeline

WIDTH = 900
"""Pixels of a picture, labels included."""

MOST_LANES = 64
"""So many streams are drawn."""

_LABEL, _LANE, _GAP, _FOOT = 110, 22, 6, 20
_COLOURS = {
    "cube": "#0072b2",
    "vector": "#e69f00",
    "hbm": "#009e73",
    "l2": "#56b4e9",
    "fixed": "#b9c1ca",
    "peers": "#f0e442",
    "": "#b9c1ca",
}
_LINK = "#cc79a7"

Bar = tuple[float, float, str, str]
"""Left, width, resource, title."""


def duration_text(ns: float) -> str:
    """Nanoseconds as us, ms or s."""
    for limit, unit in ((1e9, "s"), (1e6, "ms")):
        if ns >= limit:
            return f"{ns / limit:.2f} {unit}"
    return f"{ns / 1000:.2f} us"


def timeline_html(timeline: Timeline) -> str:
    """A bar chart with a lane per stream, coloured by what limits each task."""
    if not timeline.spans:
        return "<p>An empty timeline: no task ran.</p>"
    lanes = list(timeline.streams.items())
    shown = lanes[:MOST_LANES]
    ranks = len({rank for (rank, _), _ in lanes})
    height = len(shown) * (_LANE + _GAP) + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" style="max-width:100%;height:auto" '
        'role="img" font-family="sans-serif" font-size="11">',
        f"<title>{escape(_heading(timeline))}</title>",
    ]
    for row, ((rank, stream), spans) in enumerate(shown):
        name = f"Card {rank} Stream {stream}" if ranks > 1 else f"Stream {stream}"
        parts += _lane(timeline, row, name, spans)
    parts += _axis(timeline.makespan_ns, height)
    parts.append("</svg>")
    more = len(lanes) - len(shown)
    rest = f"<div>and {more} more streams</div>" if more else ""
    head = f"<div><b>{escape(_heading(timeline))}</b></div>"
    return f"<div>{head}{''.join(parts)}{rest}<div>{_legend(timeline)}</div></div>"


def _heading(timeline: Timeline) -> str:
    name = " on ".join(part for part in (timeline.model, timeline.device) if part)
    facts = (
        f"{duration_text(timeline.makespan_ns)}, {len(timeline.spans)} tasks on "
        f"{len(timeline.streams)} stream(s), overlap {timeline.overlap:.0%}"
    )
    return f"{name}: {facts}" if name else facts


def _lane(timeline: Timeline, row: int, name: str, spans: Sequence[Span]) -> Iterator[str]:
    top = row * (_LANE + _GAP)
    busy = sum(s.duration_ns for s in spans) / max(1, timeline.makespan_ns)
    yield (
        f'<text x="0" y="{top + _LANE / 2 + 4:g}" fill="currentColor">{name} {busy:.0%}</text>'
        f'<rect x="{_LABEL}" y="{top}" width="{WIDTH - _LABEL}" height="{_LANE}" '
        'fill="currentColor" opacity="0.06"/>'
    )
    for left, width, bound, title in _bars(spans, timeline.makespan_ns):
        yield (
            f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_LANE}" '
            f'fill="{_COLOURS.get(bound, _LINK)}"><title>{escape(title)}</title></rect>'
        )


def _bars(spans: Sequence[Span], makespan: int) -> Iterator[Bar]:
    """Tasks of a pixel or more one by one; smaller ones that lie in one pixel together."""
    scale = (WIDTH - _LABEL) / max(1, makespan)
    small: list[Span] = []
    for span in spans:
        if span.duration_ns * scale >= 1:
            yield from _together(small, scale)
            small = []
            yield _bar([span], scale)
            continue
        if small and int(small[0].start_ns * scale) != int(span.start_ns * scale):
            yield from _together(small, scale)
            small = []
        small.append(span)
    yield from _together(small, scale)


def _together(spans: list[Span], scale: float) -> Iterator[Bar]:
    if spans:
        yield _bar(spans, scale)


def _bar(spans: list[Span], scale: float) -> Bar:
    first, busy = spans[0], sum(s.duration_ns for s in spans)
    bounds: dict[str, int] = defaultdict(int)
    for span in spans:
        bounds[span.bound_by] += span.duration_ns
    most = max(sorted(bounds), key=lambda name: bounds[name])
    what = f"{first.name} ({first.op_type})" if len(spans) == 1 else f"{len(spans)} tasks"
    title = f"{what}: {duration_text(busy)}, limited by {most or 'nothing known'}"
    return _LABEL + first.start_ns * scale, max(0.3, busy * scale - 0.3), most, title


def _axis(makespan: int, height: int) -> Iterator[str]:
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = _LABEL + part * (WIDTH - _LABEL)
        yield (
            f'<text x="{x:g}" y="{height - 6}" text-anchor="{anchor}" fill="currentColor" '
            f'opacity="0.7">{duration_text(part * makespan)}</text>'
        )


def _legend(timeline: Timeline) -> str:
    times: dict[str, int] = defaultdict(int)
    for span in timeline.spans:
        times[span.bound_by] += span.duration_ns
    total = sum(times.values()) or 1
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:8]
    return " &nbsp; ".join(
        f'<span style="color:{_COLOURS.get(name, _LINK)}">&#9632;</span> '
        f"{escape(name or 'nothing known')} {time / total:.0%}"
        for name, time in ranked
    )


def schedule_html(schedule: Schedule) -> str:
    """A table with a row per stream: how many tasks, waits, and what it begins and ends with."""
    waits: dict[tuple[int, int], int] = defaultdict(int)
    stream_of = {task.id: (task.rank, task.stream) for task in schedule.tasks}
    for event in schedule.events:
        if event.consumer in stream_of:
            waits[stream_of[event.consumer]] += 1
    ranks = len({rank for rank, _ in schedule.streams})
    rows = [
        (
            f"Card {rank} Stream {stream}" if ranks > 1 else f"Stream {stream}",
            str(len(tasks)),
            str(waits[rank, stream]),
            tasks[0].name,
            tasks[-1].name,
        )
        for (rank, stream), tasks in list(schedule.streams.items())[:MOST_LANES]
    ]
    facts = (
        f"{schedule.model} on {schedule.device}, strategy {schedule.strategy}: "
        f"{len(schedule.tasks)} tasks on {len(schedule.streams)} stream(s), "
        f"{len(schedule.events)} waits, {schedule.arena_bytes:,} bytes of memory"
    )
    table = table_html(("Stream", "Tasks", "Waits", "First", "Last"), rows)
    return f"<div><b>{escape(facts)}</b>{table}</div>"


def table_html(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table; everything in it is escaped."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
