"""A timeline as text: a bar per stream, as long as the stream is busy."""

from __future__ import annotations

from gecompiler.ir.timeline import Timeline
from gecompiler.units import duration


def stream_bars(timeline: Timeline, max_streams: int, width: int = 40) -> str:
    """A line per stream: ``Stream0: [=====     ] 5.00 ms``.

    The full bar is the makespan. Streams of the device that no task uses are shown empty, so
    that one sees what is left.
    """
    ranks = sorted({rank for rank, _ in timeline.streams}) or [0]
    lines: list[str] = []
    for rank in ranks:
        used = {stream for r, stream in timeline.streams if r == rank}
        shown = range(min(max([max_streams - 1, *used]), 63) + 1)
        prefix = f"Rank{rank} " if len(ranks) > 1 else ""
        lines += [prefix + _bar(timeline, rank, s, width, s in used) for s in shown]
    return "\n".join(lines)


def _bar(timeline: Timeline, rank: int, stream: int, width: int, used: bool) -> str:
    busy = timeline.busy_ns(rank, stream)
    share = busy / timeline.makespan_ns if timeline.makespan_ns else 0.0
    cells = min(width, round(share * width)) if not busy else max(1, round(share * width))
    bar = ("=" * min(cells, width)).ljust(width)
    note = f"{duration(busy / 1000)}  {share:.0%} busy" if used else "not used"
    return f"Stream{stream}: [{bar}] {note}"
