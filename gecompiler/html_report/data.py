"""Timeline, schedule and report as the compact plain data that the page's scripts read.

Tasks are written stream by stream in the order of time, as columns: gap to the task before,
duration, and numbers of strings. ``data.js`` undoes it. Nothing here depends on a compilation,
so that captured timelines can be shown as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gecompiler.html_report.compact import StringTable
from gecompiler.html_report.critical import critical_tasks
from gecompiler.html_report.curves import curve_part
from gecompiler.html_report.facts import facts
from gecompiler.html_report.tasks import TaskColumns
from gecompiler.ir.schedule import Schedule
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.lang import translate

FORMAT = 1


@dataclass(frozen=True)
class Subject:
    """What a page shows. Only the timeline is needed; what is absent is not shown."""

    timeline: Timeline
    schedule: Schedule | None = None
    report: Mapping[str, Any] | None = None
    """As `gecompiler.report.build_report` gives it."""
    advice: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What to change, by language."""
    single: Timeline | None = None
    """The same work on one stream, to compare with."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """Types of tensors, as text."""
    operands: Mapping[int, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    """What tasks read and write, as text, where no schedule names their tensors: captures."""
    stream_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Names of streams by (rank, stream), where they have others than their numbers."""
    title: str = ""


def page_data(subject: Subject) -> dict[str, Any]:
    """Plain data for `page.render_page`: the same subject gives the same data."""
    timeline, schedule = subject.timeline, subject.schedule
    spans = ordered(timeline)
    strings = StringTable()
    columns = TaskColumns(spans, schedule, subject.shapes, subject.operands, strings)
    place = {span.task: i for i, span in enumerate(spans)}
    tasks = columns.encoded()
    events = columns.events(timeline, place)
    single = None if subject.single is None else _strip(subject.single, strings)
    ranks = strings.ranks()
    _renumber(tasks, ranks)
    _renumber(events, ranks)
    if single is not None:
        _renumber(single, ranks)
    return {
        "format": FORMAT,
        "title": subject.title or timeline.model,
        "device": timeline.device,
        "makespan": timeline.makespan_ns,
        "lanes": [
            [rank, stream, name] for (rank, stream), name in sorted(subject.stream_names.items())
        ],
        "strings": strings.encoded(),
        "tasks": tasks,
        "events": events,
        "critical": [place[task] for task in critical_tasks(timeline)],
        "curves": curve_part(timeline, schedule),
        "single": single,
        "facts": facts(timeline),
        "report": None if subject.report is None else _shown(subject.report),
        "told": {} if subject.report is None else {"zh": _told(subject.report, "zh")},
        "advice": {lang: list(texts) for lang, texts in subject.advice.items()},
    }


def ordered(timeline: Timeline) -> list[Span]:
    """The spans stream by stream, each stream in the order of time."""
    return [span for spans in timeline.streams.values() for span in spans]


def _renumber(part: dict[str, Any], ranks: Sequence[int]) -> None:
    """Strings by their place in the sorted table; the columns that hold them say so."""
    for name in part.pop("texts"):
        column = part[name]
        if isinstance(column, dict):
            column["values"] = [ranks[v] for v in column["values"]]
        else:
            part[name] = [ranks[v] for v in column]


def _strip(timeline: Timeline, strings: StringTable) -> dict[str, Any]:
    """One stream's run: enough to draw it and to add up its time by type."""
    spans = sorted(timeline.spans, key=lambda s: (s.start_ns, s.end_ns, s.task))
    gaps, last = [], 0
    for span in spans:
        gaps.append(span.start_ns - last)
        last = span.end_ns
    return {
        "gap": gaps,
        "dur": [s.duration_ns for s in spans],
        "name": [strings.add(s.name) for s in spans],
        "type": [strings.add(s.op_type) for s in spans],
        "bound": [strings.add(s.bound_by) for s in spans],
        "texts": ["name", "type", "bound"],
    }


def _shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without what the columns say better."""
    found = {key: value for key, value in report.items() if key != "passes"}
    if "sync" in found:
        found["sync"] = {k: v for k, v in found["sync"].items() if k != "waits"}
    return _finite(found)  # type: ignore[no-any-return]


def _told(report: Mapping[str, Any], lang: str) -> dict[str, str]:
    """What the report says, by its English text: refusals, warnings, findings."""
    texts = [site["reason"] for site in report["attention"]["sites"]]
    for row in report["warnings"]:
        texts += (row["message"], row["hint"])
    for row in report["verification"]["findings"]:
        texts += (row["message"], row["fix"])
    found = {text: translate(text, lang) for text in texts if text}
    return {text: other for text, other in found.items() if other != text}


def _finite(value: Any) -> Any:
    """Numbers that JSON has no form for, which a model may hold, become text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
