"""An explanation as data, times in us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gecompiler.explain import Explainer, Explanation
from gecompiler.explain_meeting import meeting_data


def explanation_data(
    found: Explanation, explainer: Explainer, like: Sequence[int] = ()
) -> dict[str, Any]:
    """The explanation as JSON, times in us; ``way`` holds every task of it."""
    task, span, name = found.task, found.span, explainer.name
    return {
        "schema_version": 1,
        "name": task.name,
        "op_type": task.op_type,
        "group": task.group,
        "ops": list(task.ops),
        "rank": task.rank,
        "stream": task.stream,
        "position": task.order,
        "start_us": span.start_ns / 1000,
        "end_us": span.end_ns / 1000,
        "alone_us": span.alone_ns / 1000,
        "bound_by": span.bound_by,
        "beside": [{"name": name(t), "us": ns / 1000} for t, ns in found.beside],
        "why_here": found.why_here,
        "data_ready_us": found.data_ready_ns / 1000,
        "data_from": None if found.data_from is None else name(found.data_from),
        "stream_idle_us": span.wait_ns / 1000,
        "releases": [
            {
                "kind": r.kind,
                "at_us": r.at_ns / 1000,
                "by": None if r.by is None else name(r.by),
                "decides": i == 0,
            }
            for i, r in enumerate(found.releases)
        ],
        "way": {
            "alone_us": found.way.alone_ns / 1000,
            "slowed_us": found.way.slowed_ns / 1000,
            "between_us": found.way.between_ns / 1000,
            "tasks": [_way_data(t, explainer) for t in found.way.tasks],
        },
        "earliest_us": found.earliest_ns / 1000,
        "levers": [
            {
                "kind": lever.kind,
                "gain_us": lever.gain_ns / 1000,
                "task": None if lever.task is None else name(lever.task),
                "stream": lever.stream,
            }
            for lever in found.levers
        ],
        "slack_us": found.slack_ns / 1000,
        "critical": found.critical,
        **({} if found.meeting is None else {"meeting": meeting_data(found.meeting, explainer)}),
        **({"elsewhere": matches_rows(like, explainer)} if like else {}),
    }


def matches_rows(tasks: Sequence[int], explainer: Explainer) -> list[dict[str, Any]]:
    """What is said of each of several tasks, times in us."""
    times = explainer.times
    return [
        {
            "name": explainer.name(t),
            "op_type": times.spans[t].op_type,
            **({"rank": times.spans[t].rank} if explainer.several_cards else {}),
            "stream": times.spans[t].stream,
            "start_us": times.spans[t].start_ns / 1000,
            "duration_us": times.spans[t].duration_ns / 1000,
            "stream_idle_us": times.spans[t].wait_ns / 1000,
            "slack_us": times.slack_ns[t] / 1000,
            "critical": times.slack_ns[t] == 0,
        }
        for t in tasks
    ]


def _way_data(task: int, explainer: Explainer) -> dict[str, Any]:
    span = explainer.times.spans[task]
    return {
        "name": span.name,
        "stream": span.stream,
        "start_us": span.start_ns / 1000,
        "duration_us": span.duration_ns / 1000,
        "slowed_us": max(0, span.duration_ns - span.alone_ns) / 1000,
    }
