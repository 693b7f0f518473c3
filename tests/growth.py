"""How work grows with size: counted, or timed where counting does not see it.

Calls are the same on every machine and under every load. What a single call of C takes longer is
seen by processor time alone; the ratio of two such times, each the best of several, is compared
with a wide margin.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType

Make = Callable[[int], Callable[[], object]]
"""Prepares work of a size; what it returns does the work."""


def calls(action: Callable[[], object]) -> int:
    """The calls of functions, also of those written in C, that the action makes."""
    count = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.collect()  # nothing is finalised meanwhile
    gc.disable()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def growth_of_calls(make: Make, small: int, large: int) -> float:
    """The calls for the large size over those for the small one; the first run is not counted."""
    make(small)()
    few, many = calls(make(small)), calls(make(large))
    return many / few


def growth_of_time(make: Make, small: int, large: int, times: int = 5) -> float:
    """The processor time for the large size over that for the small one, the best of several."""
    best = {}
    for size in (small, large):
        best[size] = min(_seconds(make(size)) for _ in range(times))
    return best[large] / best[small]


def _seconds(action: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    action()
    return time.process_time() - start
