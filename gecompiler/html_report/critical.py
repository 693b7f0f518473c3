"""The critical path of what was simulated: who held up whom, back from the last task."""

from __future__ import annotations

from gecompiler.ir.timeline import Timeline


def critical_tasks(timeline: Timeline) -> tuple[int, ...]:
    """Task ids from the start to the end of the run, each released by the one before it.

    Beginning with the task that ends last (of several the one with the lowest id), each task's
    ``waited_for`` is followed until a task that waited for none. A timeline that goes in a
    circle, which only a made-up one does, is followed once round.
    """
    spans = {span.task: span for span in timeline.spans}
    if not spans:
        return ()
    at: int | None = max(timeline.spans, key=lambda s: (s.end_ns, -s.task)).task
    path: dict[int, None] = {}
    while at is not None and at in spans and at not in path:
        path[at] = None
        at = spans[at].waited_for
    return tuple(reversed(path))
