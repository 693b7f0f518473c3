"""The time between two tasks of a stream, from a capture's own points in time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gecompiler.captures import MeasuredOp

FEWEST_GAPS = 20
MOST_US = 5.0
"""Longer gaps are not the device's: a host issued the tasks one by one."""
_SHARE = 0.1
"""Tasks issued late wait longer; the shortest tenth of the gaps are the device's own."""


def task_gap_us(ops: Sequence[MeasuredOp]) -> float | str:
    """The gap, or in words why it cannot be told.

    From start and duration where both are there, else from the wait column. The gap is the
    tenth percentile; it is refused where it is longer than `MOST_US`, or where the shortest
    ones differ by more than a factor of 3.
    """
    gaps = sorted(_gaps(ops))
    if len(gaps) < FEWEST_GAPS:
        return f"only {len(gaps)} pairs of tasks follow each other on a stream"
    low, mid, high = (gaps[int(len(gaps) * q)] for q in (_SHARE / 2, _SHARE, 2 * _SHARE))
    if mid > MOST_US or high > 3 * low:
        return f"the shortest gaps are {low:.2f} to {high:.2f} us: the host issued the tasks"
    return mid


def _gaps(ops: Sequence[MeasuredOp]) -> list[float]:
    by_stream: dict[str, list[MeasuredOp]] = {}
    for op in ops:
        if op.stream and op.core not in ("HCCL", "COMMUNICATION"):
            by_stream.setdefault(op.stream, []).append(op)
    found: list[float] = []
    for members in by_stream.values():
        timed = [(op.start_ns, op.duration_us) for op in members if op.start_ns is not None]
        timed.sort()
        for (start, duration), (after, _) in pairwise(timed):
            gap = (after - start) / 1000 - duration
            if gap > 0:
                found.append(gap)
    return found
