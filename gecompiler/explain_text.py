"""An explanation as people read it, and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from gecompiler.explain import Explainer, Explanation, Lever
from gecompiler.explain_times import Release
from gecompiler.units import duration

WIDTH = 96
MOST = 5
"""So many tasks of a list are shown; the data has all."""
MOST_MATCHES = 20


def explanation_text(found: Explanation, explainer: Explainer, asked: str = "") -> str:
    """The text for a terminal, at most 96 columns wide where names allow.

    ``asked`` is the name by which it was found, told where the task has another one.
    """
    task, span, e = found.task, found.span, explainer
    what = ", ".join(filter(None, (task.op_type or task.kind, task.group)))
    queue = explainer.schedule.streams[task.rank, task.stream]
    lines = [
        *([f"{asked!r} is the work of this task:"] if asked not in ("", task.name) else []),
        f"{task.name} ({what})",
        *_row("runs", f"{_ns(span.start_ns)} to {_ns(span.end_ns)} on {_lane(found, explainer)}, "
              f"number {task.order + 1} of {len(queue)} there"),
        *_row("takes", _takes(found, explainer)),
        *_row("why here", found.why_here or "not recorded"),
        *_row("why then", _data_line(found, explainer)),
        *(line for release in found.releases[: MOST + 1]
          for line in _row("", _release_line(release, found, explainer))),
        *_row("idle", _idle_line(found, explainer)),
        *_row("the way", _way_line(found)),
        *(line for text in _way_rows(found, explainer) for line in _row("", text)),
        *_row("earlier", _earlier_line(found)),
        *(line for lever in found.levers for line in _row("", _lever_line(lever, found, e))),
        *_row("slack", _slack_line(found)),
    ]  # fmt: skip
    return "\n".join(lines)


def explanation_data(found: Explanation, explainer: Explainer) -> dict[str, Any]:
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
    }


def matches_rows(tasks: Sequence[int], explainer: Explainer) -> list[dict[str, Any]]:
    """What is said of each of several tasks, times in us."""
    times = explainer.times
    return [
        {
            "name": explainer.name(t),
            "op_type": times.spans[t].op_type,
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


def _row(title: str, text: str) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {title:<10}", subsequent_indent=" " * 14,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _ns(ns: float) -> str:
    return duration(ns / 1000)


def _lane(found: Explanation, explainer: Explainer) -> str:
    several = len({rank for rank, _ in explainer.timeline.streams}) > 1
    return (f"Rank{found.task.rank} " if several else "") + f"Stream{found.task.stream}"


def _named(task: int, explainer: Explainer) -> str:
    span = explainer.times.spans[task]
    return f"{span.name} (Stream{span.stream})"


def _takes(found: Explanation, explainer: Explainer) -> str:
    span = found.span
    limit = f"limited by {span.bound_by}" if span.bound_by else ""
    slowed = span.duration_ns - span.alone_ns
    if slowed <= 0:
        company = f"not slowed by what runs beside it ({len(found.beside)} tasks)"
        return ", ".join(
            filter(
                None,
                (_ns(span.duration_ns), limit, company if found.beside else "nothing beside it"),
            )
        )
    others = ", ".join(f"{_named(t, explainer)} {_ns(ns)}" for t, ns in found.beside[:3])
    reason = f"beside {others}" if others else "waiting for its peers"
    return f"{_ns(span.duration_ns)}, {limit}: {_ns(slowed)} more than alone, {reason}"


def _data_line(found: Explanation, explainer: Explainer) -> str:
    if found.data_from is None:
        return f"{_ns(0):>10}  its data is there from the start"
    last = _named(found.data_from, explainer)
    return f"{_ns(found.data_ready_ns):>10}  its data is ready: {last} ended"


def _release_line(release: Release, found: Explanation, explainer: Explainer) -> str:
    mark = "  <- decides" if release is found.releases[0] else ""
    return f"{_ns(release.at_ns):>10}  {_condition(release, found, explainer)}{mark}"


def _condition(release: Release, found: Explanation, explainer: Explainer) -> str:
    if release.by is None:
        return (
            "the host has issued it"
            if release.kind == "host"
            else "its stream is free, being the first"
        )
    if release.kind == "stream":
        waits = explainer.times.waits(found.task.id)
        own = f" and {waits} wait{'s' if waits > 1 else ''} of its own" if waits else ""
        return f"its stream is free: after {explainer.name(release.by)}{own}"
    events = explainer.schedule.waits[found.task.id]
    event = next(e for e in events if e.producer == release.by)
    why = f"{event.kind}: {', '.join(event.tensors[:3])}" if event.tensors else event.kind
    return f"the event of {_named(release.by, explainer)} has arrived ({why})"


def _idle_line(found: Explanation, explainer: Explainer) -> str:
    if not found.span.wait_ns:
        return "its stream did not wait before it"
    return f"its stream stood idle for {_ns(found.span.wait_ns)} before it"


def _way_line(found: Explanation) -> str:
    way, start = found.way, found.span.start_ns
    if not way.tasks:
        return "nothing came before that held it up"
    return (
        f"{_ns(start)} before it = {_ns(way.alone_ns)} of tasks that held up each other + "
        f"{_ns(way.slowed_ns)} that sharing resources cost them + {_ns(way.between_ns)} launches "
        f"and waits; {len(way.tasks)} tasks, the longest:"
    )


def _way_rows(found: Explanation, explainer: Explainer) -> Iterator[str]:
    spans = explainer.times.spans
    longest = sorted(found.way.tasks, key=lambda t: (-spans[t].duration_ns, t))[:MOST]
    for task in sorted(longest, key=lambda t: (spans[t].start_ns, t)):
        span = spans[task]
        slowed = span.duration_ns - span.alone_ns
        note = f", {_ns(slowed)} of it by sharing {span.bound_by}" if slowed > 0 else ""
        yield f"{_ns(span.duration_ns):>10}  {_named(task, explainer)}{note}"


def _earlier_line(found: Explanation) -> str:
    most = found.span.start_ns - found.earliest_ns
    if most <= 0:
        return "it cannot start earlier: what it depends on takes so long, alone"
    return (
        f"at most {_ns(most)}, whatever is changed about streams and order: what it depends on "
        f"takes {_ns(found.earliest_ns)}, alone" + ("; up to" if found.levers else "")
    )


def _lever_line(lever: Lever, found: Explanation, explainer: Explainer) -> str:
    return f"{_ns(lever.gain_ns):>10}  {_what_to_do(lever, found, explainer)}"


def _what_to_do(lever: Lever, found: Explanation, explainer: Explainer) -> str:
    other = "" if lever.task is None else _named(lever.task, explainer)
    if lever.kind == "move":
        return f"move it to Stream{lever.stream}, on which nothing runs then"
    if lever.kind == "join":
        return f"move it to Stream{lever.stream}, behind {other}, which it depends on"
    if lever.kind == "shorten":
        needed = lever.task in explainer.preds[found.task.id]
        return f"shorten {other}" + (
            "" if needed else ", or move that: it is not needed for its data"
        )
    if lever.kind == "shorten_back":
        return f"shorten {other}, the longest on the way"
    if lever.kind == "launch":
        return "let the device issue tasks (--launch sunk)"
    return "keep what shares resources with the tasks on the way apart from them"


def _slack_line(found: Explanation) -> str:
    if found.critical:
        return "none, on the critical path: whatever makes it later makes the run longer"
    return (
        f"{_ns(found.slack_ns)}: it may start so much later at no cost to the run, and starting "
        "earlier gains the run nothing by itself"
    )
