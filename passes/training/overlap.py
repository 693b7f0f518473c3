"""How much of the gradient sync shows: what a schedule can hide, worked out by hand.

One backward pass completes gradients at certain times; one stream sums them over the replicas,
one bucket after the other. With collectives that take nothing from computing, bucket i ends at
``end_i = max(end_{i-1}, ready_i) + time_i``, and what goes on after the backward pass shows.
"""

from __future__ import annotations

from collections.abc import Sequence


def exposed_us(ready_us: Sequence[float], sync_us: Sequence[float], backward_us: float) -> float:
    """The communication that the backward pass does not hide, in us.

    ``ready_us``: when each bucket's last gradient is there, in the order of the buckets, from the
    start of the backward pass, which takes ``backward_us``; ``sync_us``: how long each takes.
    """
    end = 0.0
    for ready, time in zip(ready_us, sync_us, strict=True):
        end = max(end, ready) + time
    return max(0.0, end - backward_us)
