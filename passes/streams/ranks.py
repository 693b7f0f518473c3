"""Upward ranks: how much time still lies ahead from the start of each task.

Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for
heterogeneous computing, IEEE TPDS 13(3), 2002.
"""

from __future__ import annotations

from collections.abc import Sequence


def upward_ranks(
    succs: Sequence[Sequence[int]], duration: Sequence[float], step: float = 0.0
) -> list[float]:
    """The longest path from each task to the end, its own duration included, in us.

    ``step`` is added for every edge of a path (the least time between two dependent tasks).
    Tasks are in topological order. O(V + E).
    """
    rank = [0.0] * len(duration)
    for task in range(len(duration) - 1, -1, -1):
        ahead = max((rank[s] + step for s in succs[task]), default=0.0)
        rank[task] = duration[task] + ahead
    return rank
