"""The critical path of what was simulated: who held up whom, back from the last task."""

from __future__ import annotations

from gecompiler.ir.timeline import Timeline


def critical_tasks(timeline: Timeline) -> tuple[int, ...]:
    """Task ids up to the end of the run, each released by the one before it.

    Beginning with the task that ends last (of several the one with the lowest id), each task's
    ``waited_for`` is followed until a task that waited for none. Where the host issued a task
    last of all (``wait_cause`` resource), the path begins there: no task before it held it up,
    and none of them would make the run longer by being later. A timeline that goes in a circle,
    which only a made-up one does, is followed once round. Of a collective the part that came
    last is on the path, for which the others waited.
    """
    spans = {span.task: span for span in timeline.spans}
    if not spans:
        return ()
    at: int | None = max(timeline.spans, key=lambda s: (s.end_ns, -s.task)).task
    path: dict[int, None] = {}
    while at is not None and at in spans and at not in path:
        span = spans[at]
        if span.peer is not None and span.peer in spans:
            span = spans[span.peer]
        if span.task in path:
            break
        path[span.task] = None
        at = None if span.wait_cause == "resource" else span.waited_for
    return tuple(reversed(path))
