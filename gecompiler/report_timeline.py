"""A timeline as text: a bar per stream, as long as the stream is busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gecompiler.ir.timeline import Timeline
from gecompiler.lang import say
from gecompiler.lang.width import columns, pad
from gecompiler.like_ranks import like_ranks, ranks_text
from gecompiler.units import duration

MOST_RANKS = 8
"""So many are shown."""


def bar_width(width: int) -> int:
    """Columns of a bar on a screen of that many."""
    return max(6, min(40, width - 40))


def stream_bars(timeline: Timeline, max_streams: int, width: int = 40) -> str:
    """A line per stream: ``Stream0: [=====     ] 5.00 ms``.

    The full bar is the makespan. Streams of the device that no task uses are shown empty, so
    that one sees what is left; of several cards only those that are used, of the first cards,
    where cards that run alike are one: ``Ranks0-3 Stream0: [...``.
    """
    groups = like_ranks(timeline) or [(0,)]
    several = sum(map(len, groups)) > 1
    shown = groups[:MOST_RANKS]
    prefixes = [rank_prefix(ranks) if several else "" for ranks in shown]
    wide = max(map(columns, prefixes))
    lines: list[str] = []
    for (rank, *_), prefix in zip(shown, prefixes, strict=True):
        used = {stream for r, stream in timeline.streams if r == rank}
        most = max(used, default=-1) if several else min(max([max_streams - 1, *used]), 63)
        title = pad(prefix, wide)
        lines += [title + _bar(timeline, rank, s, width, s in used) for s in range(most + 1)]
    if len(groups) > MOST_RANKS:
        count = sum(map(len, groups[MOST_RANKS:]))
        lines.append(say("and {count} more ranks", count=count))
    return "\n".join(lines)


def rank_prefix(ranks: Sequence[int]) -> str:
    """What stands before a stream of one of several ranks, or of ranks that run alike."""
    return f"Rank{'s' if len(ranks) > 1 else ''}{ranks_text(ranks)} "


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
