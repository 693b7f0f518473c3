"""Step and overlap figures of a card, reckoned as the vendor reckons ``step_trace_time.csv``.

The card's time is divided into lanes over the whole run; a part of a lane counts to the step in
whose window on the device it begins. A window runs from the first kernel of the step to its
last, or to the end of the step on the host where that is later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gecompiler.backends.trace.intervals import Interval, Lanes, StepTime, lanes, step_time
from gecompiler.backends.trace.msprof_rows import is_receive
from gecompiler.profiles.records import Card, HostStep, Kernel, is_communication


class Window(NamedTuple):
    """Where a step lies on the device, and when it began on the host."""

    step: str
    start_ns: int
    end_ns: int
    host_ns: int | None


def step_times(card: Card, device: int, rank: int) -> list[StepTime]:
    """The steps of one device of a card; one without a name where no steps were marked."""
    kernels = [k for k in card.kernels if k.device == device]
    talks = [k for k in kernels if is_communication(k.core, k.op_type)]
    works = [k for k in kernels if not is_communication(k.core, k.op_type)]
    found = lanes(_intervals(works), _intervals(talks))
    receives = [k for k in talks if is_receive(k.op_type) or is_receive(k.name)]
    windows = _windows(card, kernels)
    if not windows:
        return [step_time(found, rank, "", sum(k.duration_ns for k in receives))]
    return _by_window(found, receives, windows, rank)


def device_lanes(card: Card, device: int) -> Lanes:
    """The lanes of one device over the whole run."""
    kernels = [k for k in card.kernels if k.device == device]
    return lanes(
        _intervals([k for k in kernels if not is_communication(k.core, k.op_type)]),
        _intervals([k for k in kernels if is_communication(k.core, k.op_type)]),
    )


def _intervals(kernels: Sequence[Kernel]) -> list[Interval]:
    return [(k.start_ns, k.end_ns) for k in kernels]


def _windows(card: Card, kernels: Sequence[Kernel]) -> list[Window]:
    """Disjoint windows, ascending: where two meet, what begins there is the earlier one's."""
    host = {step.step: step for step in card.host_steps}
    names = [kernel.step for kernel in kernels]
    if not any(names):
        names = _steps_by_launch(card, kernels)
    ends: dict[str, tuple[int, int]] = {}
    for name, kernel in zip(names, kernels, strict=True):
        if name:
            start, end = ends.get(name, (kernel.start_ns, kernel.end_ns))
            ends[name] = (min(start, kernel.start_ns), max(end, kernel.end_ns))
    windows: list[Window] = []
    for name, (start, end) in sorted(ends.items(), key=lambda item: (item[1], item[0])):
        marked = host.get(name)
        last = windows[-1].end_ns if windows else start
        begin = max(start, last)
        stop = max(begin, end, marked.end_ns if marked is not None else end)
        windows.append(Window(name, begin, stop, None if marked is None else marked.start_ns))
    return windows


def _steps_by_launch(card: Card, kernels: Sequence[Kernel]) -> list[str]:
    """The step on the host in which each kernel was issued; '' for those outside."""
    marked: list[HostStep] = sorted(card.host_steps, key=lambda s: s.start_ns)
    starts = [step.start_ns for step in marked]
    names: list[str] = []
    for kernel in kernels:
        issued = card.launches.get(kernel.start_ns, kernel.start_ns)
        at = bisect_right(starts, issued) - 1
        names.append(marked[at].step if at >= 0 and issued <= marked[at].end_ns else "")
    return names


def _by_window(
    found: Lanes, receives: Sequence[Kernel], windows: Sequence[Window], rank: int
) -> list[StepTime]:
    starts = [window.start_ns for window in windows]

    def owner(time: int) -> int | None:
        at = bisect_right(starts, time) - 1
        return at if at >= 0 and time < windows[at].end_ns else None

    parts: list[dict[str, list[Interval]]] = [defaultdict(list) for _ in windows]
    for name, intervals in found.named():
        for interval in intervals:
            at = owner(interval[0])
            if at is not None:
                parts[at][name].append(interval)
    bubbles = [0] * len(windows)
    for kernel in receives:
        at = owner(kernel.start_ns)
        if at is not None:
            bubbles[at] += kernel.duration_ns
    return [
        _one(window, part, bubble, rank)
        for window, part, bubble in zip(windows, parts, bubbles, strict=True)
    ]


def _one(window: Window, parts: dict[str, list[Interval]], bubble: int, rank: int) -> StepTime:
    sums = {name: sum(e - s for s, e in intervals) for name, intervals in parts.items()}
    every = [interval for intervals in parts.values() for interval in intervals]
    busy = [*parts.get("Computing", ()), *parts.get("Communication", ())]
    stage = max(e for _, e in every) - min(s for s, _ in every) if every else 0
    first = min((s for s, _ in busy), default=None)
    known = window.host_ns is not None and first is not None
    return StepTime(
        device=rank,
        step=window.step,
        computing=sums.get("Computing", 0),
        not_overlapped=sums.get("Communication(Not Overlapped)", 0),
        communication=sums.get("Communication", 0),
        free=sums.get("Free", 0),
        stage=stage - bubble,
        bubble=bubble,
        preparing=(first or 0) - (window.host_ns or 0) if known else None,
    )
