"""A timeline as a picture for papers and slides: a lane per stream, colours by what limits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gecompiler.html_report.critical import critical_tasks
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.lang import say
from gecompiler.plotting import (
    CRITICAL_COLOUR,
    bound_colour,
    check_plot,
    label_language,
    save_figure,
)
from gecompiler.report_layout import resource_name
from gecompiler.units import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ARROWS = 400
"""Of more syncs than this only those are drawn upon which a task started."""
MOST_LANES = 64
_BAR, _CRITICAL = 0.62, 0.07
_INCHES, _POINTS_A_LETTER = 12.0, 5.0


def write_timeline_plot(
    timeline: Timeline,
    path: str,
    title: str = "",
    names: Mapping[tuple[int, int], str] | None = None,
) -> None:
    """Draws the timeline to an .svg, .png or .pdf file.

    ``names`` are those of streams by (rank, stream) where they have any. UsageError for another
    kind of file and where matplotlib is not installed; the same timeline gives the same bytes.
    """
    check_plot(path)
    with label_language():
        save_figure(timeline_figure(timeline, title, names or {}), path)


def timeline_figure(timeline: Timeline, title: str, names: Mapping[tuple[int, int], str]) -> Figure:
    """The matplotlib figure: bars, critical path, sync arrows, legend."""
    from matplotlib.figure import Figure

    lanes = list(timeline.streams)[:MOST_LANES]
    place = {lane: i for i, lane in enumerate(lanes)}
    scale, unit = _scale(timeline.makespan_ns)
    figure = Figure(figsize=(_INCHES, 1.7 + 0.55 * max(1, len(lanes))), layout="constrained")
    axes = figure.subplots()
    shown = [s for s in timeline.spans if (s.rank, s.stream) in place]
    _bars(axes, shown, place, scale)
    _critical(axes, timeline, place, scale)
    _arrows(axes, timeline, place, scale)
    _labels(axes, shown, place, scale, timeline.makespan_ns)
    several = len({rank for rank, _ in lanes}) > 1
    ticks = [names.get(lane) or _lane_name(lane, several=several) for lane in lanes]
    axes.set_yticks(range(len(lanes)), ticks, parse_math=False)
    axes.set_ylim(max(1, len(lanes)) - 0.4, -0.6)
    axes.set_xlim(0, max(timeline.makespan_ns, 1) / scale)
    axes.set_xlabel(say("time in {unit}", unit=unit))
    left = len(timeline.streams) - len(lanes)
    more = ""
    if left:
        count, of = len(lanes), len(timeline.streams)
        more = say(", first {count} of {of} streams", count=count, of=of)
    head = f"{title or timeline.model}: {duration(timeline.makespan_ns / 1000)}{more}"
    axes.set_title(head, parse_math=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _lane_name(lane: tuple[int, int], *, several: bool) -> str:
    return f"Rank{lane[0]} Stream{lane[1]}" if several else f"Stream{lane[1]}"


def _scale(makespan_ns: int) -> tuple[float, str]:
    """How many ns the axis's unit has, and its name."""
    for ns, unit in ((1e9, "s"), (1e6, "ms")):
        if makespan_ns >= 2 * ns:
            return ns, unit
    return 1e3, "us"


def _bars(
    axes: Axes, shown: list[Span], place: Mapping[tuple[int, int], int], scale: float
) -> None:
    """One collection of bars a lane and resource, and the legend: the most time first."""
    from matplotlib.patches import Patch

    rows: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    total: dict[str, int] = defaultdict(int)
    for span in shown:
        lane = place[span.rank, span.stream]
        rows[span.bound_by, lane].append((span.start_ns / scale, span.duration_ns / scale))
        total[span.bound_by] += span.duration_ns
    for (resource, lane), bars in rows.items():
        axes.broken_barh(
            bars,
            (lane - _BAR / 2, _BAR),
            facecolors=bound_colour(resource),
            edgecolors="white",
            linewidth=0.3,
        )
    ranked = sorted(total, key=lambda name: (-total[name], name))
    busy = math.fsum(total.values()) or 1
    handles: list[Any] = [
        Patch(color=bound_colour(r), label=f"{_limit(r)} {total[r] / busy:.0%}") for r in ranked
    ]
    handles.append(Patch(color=CRITICAL_COLOUR, label=say("critical path")))
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=min(8, len(handles)),
        title=say("limited by (share of busy time)"), frameon=False, fontsize="small",
        title_fontsize="small",
    )  # fmt: skip


def _limit(resource: str) -> str:
    return resource_name(resource) if resource else say("not known")


def _critical(
    axes: Axes, timeline: Timeline, place: Mapping[tuple[int, int], int], scale: float
) -> None:
    """A line under the tasks that held up each other until the end."""
    spans = {span.task: span for span in timeline.spans}
    rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for task in critical_tasks(timeline):
        span = spans[task]
        if (lane := place.get((span.rank, span.stream))) is not None:
            rows[lane].append((span.start_ns / scale, span.duration_ns / scale))
    for lane, bars in rows.items():
        at = lane + _BAR / 2 + 0.03
        axes.broken_barh(bars, (at, _CRITICAL), facecolors=CRITICAL_COLOUR, linewidth=0)


def _arrows(
    axes: Axes, timeline: Timeline, place: Mapping[tuple[int, int], int], scale: float
) -> None:
    """From the end of what is waited for to the start of what waits; dark where that decided."""
    spans = {span.task: span for span in timeline.spans}
    rows: list[tuple[Span, Span, bool]] = []
    for a, b in dict.fromkeys(timeline.events):
        if a in spans and b in spans:
            held = spans[b].wait_cause == "event" and spans[b].waited_for == a
            rows.append((spans[a], spans[b], held))
    if len(rows) > MOST_ARROWS:
        rows = [row for row in rows if row[2]]
    found = []
    for first, then, held in rows:
        ends = place.get((first.rank, first.stream)), place.get((then.rank, then.stream))
        if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
            continue
        side = _BAR / 2 if ends[1] > ends[0] else -_BAR / 2
        y0, y1 = ends[0] + side, ends[1] - side
        x0, x1 = first.end_ns / scale, then.start_ns / scale
        found.append((x0, y0, x1 - x0, y1 - y0, "#222222" if held else "#b8bec6"))
    if not found:
        return
    x, y, u, v, colours = zip(*found, strict=True)
    axes.quiver(
        x, y, u, v, color=colours, angles="xy", scale_units="xy", scale=1, units="dots",
        width=0.9, headwidth=6, headlength=7, headaxislength=6, minlength=0, zorder=3,
    )  # fmt: skip


def _labels(
    axes: Axes,
    shown: list[Span],
    place: Mapping[tuple[int, int], int],
    scale: float,
    makespan_ns: int,
) -> None:
    """The type in the bars that are wide enough for it."""
    points = _INCHES * 72 * 0.9 / max(1, makespan_ns)
    for span in shown:
        text = span.op_type or span.name
        if text and span.duration_ns * points > _POINTS_A_LETTER * len(text) + 4:
            middle = (span.start_ns + span.end_ns) / 2 / scale
            dark = span.bound_by in ("cube", "memory", "hbm")
            axes.text(
                middle, place[span.rank, span.stream], text, ha="center", va="center",
                fontsize=7, color="white" if dark else "#101418", clip_on=True, parse_math=False,
            )  # fmt: skip
