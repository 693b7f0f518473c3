"""What is said of a collective beyond any task: who came when, and what the transfer took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gecompiler.explain import Explainer, Explanation, Meeting
from gecompiler.lang import say
from gecompiler.report_layout import resource_name
from gecompiler.units import duration, size

MOST_RANKS = 4
"""Of more cards the first to come and the last ones are shown."""

SHOWN_NS = 10
"""Less is shown as nothing."""

Row = Callable[[str, str], list[str]]


def meeting_rows(found: Explanation, explainer: Explainer, row: Row) -> Iterator[str]:
    """The lines on it; none for a task that is no collective."""
    meeting = found.meeting
    if meeting is None:
        return
    spans = explainer.times.spans
    ranks = [(spans[task].rank, ns) for task, ns in meeting.arrivals]
    if len(ranks) > 1:
        yield from row(say("together"), _who(found, meeting, ranks))
        yield from row("", _arrivals(ranks))
    yield from row("" if len(ranks) > 1 else say("together"), _transfer(meeting))
    for text in _how(meeting):
        yield from row("", text)


def _who(found: Explanation, meeting: Meeting, ranks: list[tuple[int, int]]) -> str:
    last, at = ranks[-1]
    waited = found.span.peer_ns
    text = say(
        "{count} cards; last to come was rank {rank}, ready at {time}, {spread} after the first",
        count=len(ranks), rank=last, time=_ns(at), spread=_ns(meeting.spread_ns),
    )  # fmt: skip
    if found.task.id == meeting.last or not waited:
        return text + say("; this one waited for nobody")
    return text + say("; this one waited {waited} for it", waited=_ns(waited))


def _arrivals(ranks: list[tuple[int, int]]) -> str:
    shown = ranks if len(ranks) <= MOST_RANKS else [ranks[0], *ranks[1 - MOST_RANKS :]]
    texts = [say("rank {rank} at {time}", rank=rank, time=_ns(ns)) for rank, ns in shown]
    if len(shown) < len(ranks):
        texts.insert(1, "...")
    return ", ".join(texts)


def _transfer(meeting: Meeting) -> str:
    text = say("from then it takes {time}", time=_ns(meeting.transfer_ns))
    slowed = meeting.transfer_ns - meeting.alone_ns
    if slowed >= SHOWN_NS:
        text += say(", {slowed} of it by sharing what it needs", slowed=_ns(slowed))
    if meeting.bound_by not in ("", "peers"):
        text += say(", limited by {resource}", resource=resource_name(meeting.bound_by))
    return text


def _how(meeting: Meeting) -> Iterator[str]:
    if not meeting.how or not meeting.message_bytes:
        return
    algorithm, protocol = meeting.how
    yield say(
        "{bytes} by {algorithm}, protocol {protocol}, {steps} step(s)",
        bytes=size(round(meeting.message_bytes)), algorithm=algorithm, protocol=protocol,
        steps=meeting.steps,
    )  # fmt: skip
    if meeting.link and ":" not in meeting.bound_by:
        yield say("the link that is fullest: {link}", link=meeting.link)


def meeting_data(meeting: Meeting, explainer: Explainer) -> dict[str, Any]:
    """The same as JSON, times in us."""
    spans = explainer.times.spans
    algorithm, protocol = meeting.how or ("", "")
    return {
        "arrivals": [
            {"rank": spans[task].rank, "name": spans[task].name, "at_us": ns / 1000}
            for task, ns in meeting.arrivals
        ],
        "last_rank": spans[meeting.last].rank,
        "spread_us": meeting.spread_ns / 1000,
        "transfer_us": meeting.transfer_ns / 1000,
        "alone_us": meeting.alone_ns / 1000,
        "bound_by": meeting.bound_by,
        "algorithm": algorithm,
        "protocol": protocol,
        "steps": meeting.steps,
        "message_bytes": meeting.message_bytes,
        "fullest_link": meeting.link,
    }


def _ns(ns: float) -> str:
    return duration(ns / 1000)
