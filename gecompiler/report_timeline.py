"""A timeline as text: a bar per stream, as long as the stream is busy."""

from __future__ import annotations

from collections.abc import Mapping

from gecompiler.ir.timeline import Timeline
from gecompiler.lang import say
from gecompiler.lang.width import columns, pad
from gecompiler.units import duration

MOST_RANKS = 8
"""So many are shown."""


def bar_width(width: int) -> int:
    """Columns of a bar on a screen of that many."""
    return max(6, min(40, width - 40))


def stream_bars(timeline: Timeline, max_streams: int, width: int = 40) -> str:
    """A line per stream: ``Stream0: [=====     ] 5.00 ms``.

    The full bar is the makespan. Streams of the device that no task uses are shown empty, so
    that one sees what is left; of several cards only those that are used, of the first cards.
    """
    ranks = sorted({rank for rank, _ in timeline.streams}) or [0]
    lines: list[str] = []
    for rank in ranks[:MOST_RANKS]:
        used = {stream for r, stream in timeline.streams if r == rank}
        shown = range(min(max([max_streams - 1, *used]), 63) + 1)
        if len(ranks) > 1:  # what is left is the same on all
            shown = range(max(used, default=-1) + 1)
        prefix = f"Rank{rank} " if len(ranks) > 1 else ""
        lines += [prefix + _bar(timeline, rank, s, width, s in used) for s in shown]
    if len(ranks) > MOST_RANKS:
        lines.append(say("and {count} more ranks", count=len(ranks) - MOST_RANKS))
    return "\n".join(lines)


def named_bars(
    timeline: Timeline, names: Mapping[tuple[int, int], str], width: int = 40, most: int = 32
) -> str:
    """A line per stream that runs a task, by the streams' names, as of a captured run."""
    ranks = {rank for rank, _ in timeline.streams}
    titles = {
        (rank, stream): (f"Rank{rank} " if len(ranks) > 1 else "")
        + names.get((rank, stream), f"Stream{stream}")
        for rank, stream in list(timeline.streams)[:most]
    }
    wide = max(map(columns, titles.values()), default=0)
    lines = [_line(timeline, *lane, width, pad(title, wide)) for lane, title in titles.items()]
    left = len(timeline.streams) - len(titles)
    return "\n".join([*lines, *([say("and {count} more streams", count=left)] if left else [])])


def _bar(timeline: Timeline, rank: int, stream: int, width: int, used: bool) -> str:
    return _line(timeline, rank, stream, width, f"Stream{stream}", used)


def _line(
    timeline: Timeline, rank: int, stream: int, width: int, title: str, used: bool = True
) -> str:
    busy = timeline.busy_ns(rank, stream)
    share = busy / timeline.makespan_ns if timeline.makespan_ns else 0.0
    cells = min(width, round(share * width)) if not busy else max(1, round(share * width))
    bar = ("=" * min(cells, width)).ljust(width)
    note = (
        say("{time}  {share:.0%} busy", time=duration(busy / 1000), share=share)
        if used
        else say("0 ms  not used")
    )
    return f"{title}: [{bar}] {note}"
