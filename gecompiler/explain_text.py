"""An explanation as people read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gecompiler.explain import Explainer, Explanation, Lever
from gecompiler.explain_meeting import meeting_rows
from gecompiler.explain_times import Release
from gecompiler.lang import say, translate
from gecompiler.lang.width import pad, wrap
from gecompiler.report_layout import resource_name
from gecompiler.screen import width as terminal_width
from gecompiler.units import duration

_AMOUNT = re.compile(r" *[\d.]+ \S+  ")
"""A time in a column of its own: what follows it is wrapped beside it."""
_JOINED = "\u00a0"
"""A blank at which no line breaks."""
MOST = 5
"""So many tasks of a list are shown; the data has all."""
MOST_MATCHES = 20


def explanation_text(
    found: Explanation, explainer: Explainer, asked: str = "", like: Sequence[int] = ()
) -> str:
    """The text for a terminal, as wide as that where names allow, in the language in use.

    ``asked`` is the name by which it was found, told where the task has another one; ``like``
    are the tasks of the same op on other cards.
    """
    task, span, e = found.task, found.span, explainer
    what = ", ".join(filter(None, (task.op_type or task.kind, task.group)))
    queue = explainer.schedule.streams[task.rank, task.stream]
    runs = say(
        "{start} to {end} on {lane}, number {number} of {count} there",
        start=_ns(span.start_ns), end=_ns(span.end_ns), lane=_lane(found, explainer),
        number=task.order + 1, count=len(queue),
    )  # fmt: skip
    lines = [
        *([say("{asked!r} is the work of this task:", asked=asked)]
          if asked not in ("", task.name) else []),
        f"{task.name} ({what})",
        *_row(say("runs"), runs),
        *_row(say("takes"), _takes(found, explainer)),
        *meeting_rows(found, explainer, _row),
        *_row(say("elsewhere"), _elsewhere(like, explainer)),
        *_row(say("why here"), translate(found.why_here) or say("not recorded")),
        *_row(say("why then"), _data_line(found, explainer)),
        *(line for release in found.releases[: MOST + 1]
          for line in _row("", _release_line(release, found, explainer))),
        *_row(say("idle"), _idle_line(found)),
        *_row(say("the way"), _way_line(found)),
        *(line for text in _way_rows(found, explainer) for line in _row("", text)),
        *_row(say("earlier"), _earlier_line(found)),
        *(line for lever in found.levers for line in _row("", _lever_line(lever, found, e))),
        *_row(say("slack"), _slack_line(found)),
    ]  # fmt: skip
    return "\n".join(lines)


def _row(title: str, text: str) -> list[str]:
    if not text:
        return []
    amount = _AMOUNT.match(text)
    hang = " " * (12 + amount.end() if amount else 14)
    lines = wrap(text, terminal_width(), f"  {pad(title, 10)}", hang)
    return [line.replace(_JOINED, " ") for line in lines]


def _ns(ns: float) -> str:
    return duration(ns / 1000)


def _lane(found: Explanation, explainer: Explainer) -> str:
    rank = f"Rank{found.task.rank} " if explainer.several_cards else ""
    return f"{rank}Stream{found.task.stream}"


def _elsewhere(like: Sequence[int], explainer: Explainer) -> str:
    """When the same op runs on the other cards."""
    spans = [explainer.times.spans[t] for t in like]
    shown = [
        say("rank {rank} {start} to {end}", rank=s.rank, start=_ns(s.start_ns), end=_ns(s.end_ns))
        for s in spans[:MOST]
    ]
    if len(spans) > MOST:
        shown.append(say("and {count} more (see --json)", count=len(spans) - MOST))
    return "; ".join(shown)


def _named(task: int, explainer: Explainer) -> str:
    span = explainer.times.spans[task]
    return f"{span.name} (Stream{span.stream})"


def _takes(found: Explanation, explainer: Explainer) -> str:
    span = found.span
    takes = _ns(span.duration_ns)
    if span.bound_by:
        takes += say(", limited by {resource}", resource=resource_name(span.bound_by))
    slowed = span.duration_ns - span.alone_ns
    if slowed <= 0:
        if not found.beside:
            return takes + say(", nothing beside it")
        return takes + say(
            ", not slowed by what runs beside it ({count} tasks)", count=len(found.beside)
        )
    others = ", ".join(f"{_named(t, explainer)} {_ns(ns)}" for t, ns in found.beside[:3])
    waiting = span.peer is not None or not others
    reason = say("waiting for its peers") if waiting else say("beside {others}", others=others)
    return takes + say(": {slowed} more than alone, {reason}", slowed=_ns(slowed), reason=reason)


def _data_line(found: Explanation, explainer: Explainer) -> str:
    if found.data_from is None:
        return f"{_ns(0):>10}  " + say("its data is there from the start")
    last = _named(found.data_from, explainer)
    return f"{_ns(found.data_ready_ns):>10}  " + say("its data is ready: {last} ended", last=last)


def _release_line(release: Release, found: Explanation, explainer: Explainer) -> str:
    mark = say("  <- decides") if release is found.releases[0] else ""
    mark = mark.replace("<- ", f"<-{_JOINED}")
    return f"{_ns(release.at_ns):>10}  {_condition(release, found, explainer)}{mark}"


def _condition(release: Release, found: Explanation, explainer: Explainer) -> str:
    if release.by is None:
        if release.kind == "host":
            return say("the host has issued it")
        return say("its stream is free, being the first")
    if release.kind == "stream":
        waits, before = explainer.times.waits(found.task.id), explainer.name(release.by)
        if not waits:
            return say("its stream is free: after {before}", before=before)
        return say(
            "its stream is free: after {before} and {waits} wait(s) of its own",
            before=before, waits=waits,
        )  # fmt: skip
    events = explainer.schedule.waits[found.task.id]
    event = next(e for e in events if e.producer == release.by)
    why = f"{event.kind}: {', '.join(event.tensors[:3])}" if event.tensors else event.kind
    producer = _named(release.by, explainer)
    return say("the event of {producer} has arrived ({why})", producer=producer, why=why)


def _idle_line(found: Explanation) -> str:
    if not found.span.wait_ns:
        return say("its stream did not wait before it")
    return say("its stream stood idle for {time} before it", time=_ns(found.span.wait_ns))


def _way_line(found: Explanation) -> str:
    way, start = found.way, found.span.start_ns
    if not way.tasks:
        return say("nothing came before that held it up")
    return say(
        "{start} before it = {alone} of tasks that held up each other + {slowed} that sharing "
        "resources cost them + {between} launches and waits; {count} tasks, the longest:",
        start=_ns(start), alone=_ns(way.alone_ns), slowed=_ns(way.slowed_ns),
        between=_ns(way.between_ns), count=len(way.tasks),
    )  # fmt: skip


def _way_rows(found: Explanation, explainer: Explainer) -> Iterator[str]:
    spans = explainer.times.spans
    longest = sorted(found.way.tasks, key=lambda t: (-spans[t].duration_ns, t))[:MOST]
    for task in sorted(longest, key=lambda t: (spans[t].start_ns, t)):
        span = spans[task]
        slowed = span.duration_ns - span.alone_ns
        note = ""
        if slowed > 0:
            shared = "" if span.bound_by in ("fixed", "") else span.bound_by
            resource = resource_name(shared) if shared else say("resources")
            note = say(
                ", {slowed} of it by sharing {resource}", slowed=_ns(slowed), resource=resource
            )
        yield f"{_ns(span.duration_ns):>10}  {_named(task, explainer)}{note}"


def _earlier_line(found: Explanation) -> str:
    most = found.span.start_ns - found.earliest_ns
    if most <= 0:
        text = say("it cannot start earlier: what it depends on takes so long, alone")
        return text + (say("; up to") if found.levers else "")
    text = say(
        "at most {most}, whatever is changed about streams and order: what it depends on takes "
        "{earliest}, alone",
        most=_ns(most), earliest=_ns(found.earliest_ns),
    )  # fmt: skip
    return text + (say("; up to") if found.levers else "")


def _lever_line(lever: Lever, found: Explanation, explainer: Explainer) -> str:
    return f"{_ns(lever.gain_ns):>10}  {_what_to_do(lever, found, explainer)}"


def _what_to_do(lever: Lever, found: Explanation, explainer: Explainer) -> str:
    other = "" if lever.task is None else _named(lever.task, explainer)
    if lever.kind == "peer" and lever.task is not None:
        return _peer_to_come(lever.task, explainer)
    if lever.kind == "move":
        return say("move it to Stream{stream}, on which nothing runs then", stream=lever.stream)
    if lever.kind == "join":
        return say(
            "move it to Stream{stream}, behind {other}, which it depends on",
            stream=lever.stream, other=other,
        )  # fmt: skip
    if lever.kind == "shorten":
        if lever.task in explainer.preds[found.task.id]:
            return say("shorten {other}", other=other)
        return say("shorten {other}, or move that: it is not needed for its data", other=other)
    if lever.kind == "shorten_back":
        return say("shorten {other}, the longest on the way", other=other)
    if lever.kind == "launch":
        return say("let the device issue tasks (--launch sunk)")
    return say("keep what shares resources with the tasks on the way apart from them")


def _peer_to_come(last: int, explainer: Explainer) -> str:
    """What would let the card come earlier for which the others wait."""
    other = explainer.explain(last)
    rank = other.task.rank
    levers = [lever for lever in other.levers if lever.kind != "peer"]
    if not levers:
        return say("it goes on when rank {rank} has come, which can start no earlier", rank=rank)
    return say(
        "it goes on when rank {rank} has come; there: {what}",
        rank=rank, what=_what_to_do(levers[0], other, explainer),
    )  # fmt: skip


def _slack_line(found: Explanation) -> str:
    if found.critical:
        return say("none, on the critical path: whatever makes it later makes the run longer")
    return say(
        "{slack}: it may start so much later at no cost to the run, and starting earlier gains "
        "the run nothing by itself",
        slack=_ns(found.slack_ns),
    )
