"""Ranks that run the same at the same times: one of them stands for all where people read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gecompiler.ir.timeline import Timeline


def like_ranks(timeline: Timeline) -> list[tuple[int, ...]]:
    """The ranks in groups that run alike: op by op on the same streams at the same times.

    Groups and the ranks in them ascend; a rank that runs like no other is alone. O(tasks).
    """
    running: dict[int, list[tuple[object, ...]]] = {}
    for (rank, stream), spans in timeline.streams.items():
        row = [(s.start_ns, s.end_ns, s.op_type) for s in spans]
        running.setdefault(rank, []).append((stream, *row))
    groups: dict[tuple[tuple[object, ...], ...], list[int]] = {}
    for rank in sorted(running):
        groups.setdefault(tuple(running[rank]), []).append(rank)
    return [tuple(ranks) for ranks in groups.values()]


def ranks_text(ranks: Sequence[int]) -> str:
    """``0-2,5`` of 0, 1, 2 and 5."""
    starts = [r for n, r in enumerate(ranks) if not n or r != ranks[n - 1] + 1]
    ends = [a for a, b in pairwise(ranks) if b != a + 1] + [*ranks[-1:]]
    runs = (f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    return ",".join(runs)
