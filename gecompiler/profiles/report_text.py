"""The report of a captured run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecompiler.lang import say, translate
from gecompiler.lang.width import cut, pad, pad_left
from gecompiler.profiles.profile import Profile
from gecompiler.profiles.report import CAUSES, profile_report
from gecompiler.report_layout import share_row
from gecompiler.report_timeline import bar_width, named_bars
from gecompiler.screen import width as terminal_width
from gecompiler.units import duration

MOST_STEPS = 12

TABLE_WIDTH = 78
"""With fewer columns a step is a list of its figures."""


def profile_text(profile: Profile, width: int | None = None) -> str:
    """The whole report; ``width`` is that of the terminal, 96 columns where there is none."""
    wide = terminal_width() if width is None else width
    report = profile_report(profile)
    bars = named_bars(profile.timeline, profile.stream_names, bar_width(wide - 8))
    blocks = (
        _head(report),
        _steps(report, wide),
        [say("Streams"), *(f"  {line}" for line in bars.splitlines())],
        _waits(report),
        _types(report, wide),
        _left_out(report),
    )
    texts = ["\n".join(lines) for lines in blocks]
    return "\n\n".join(text for text in texts if text)


def _head(report: dict[str, Any]) -> Iterator[str]:
    ranks = len(report["ranks"])
    yield say("{name}: a profile by {dialect}", name=report["name"], dialect=report["dialect"])
    tasks, streams = report["tasks"], len(report["streams"])
    where = say("{tasks} tasks on {streams} streams", tasks=tasks, streams=streams)
    if ranks > 1:
        where += say(" of {ranks} ranks", ranks=ranks)
    yield "  " + where + say(
        ", {makespan} from the first to the last; {overlap:.0%} of the busy time on several "
        "streams at once",
        makespan=duration(report["makespan_us"]), overlap=report["stream_overlap"],
    )  # fmt: skip
    yield f"  {pad(say('read'), 9)}  {_some(report['sources'])}"
    if report["set_aside"]:
        note = say("(one table of operators is read)")
        yield f"  {pad(say('set aside'), 9)}  {_some(report['set_aside'])} {note}"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown + (say(" and {count} more", count=len(names) - 4) if len(names) > 4 else "")


def _steps(report: dict[str, Any], width: int) -> Iterator[str]:
    several = len(report["ranks"]) > 1
    titles = (
        (say("computing"), 11), (say("communication"), 14), (say("of it hidden"), 12),
        (say("free"), 11), (say("stage"), 11),
    )  # fmt: skip
    head = "".join(f" {pad_left(title, wide)}" for title, wide in titles)
    table = width >= TABLE_WIDTH
    yield pad(say("Steps"), 14) + head if table else say("Steps")
    for row in report["steps"][:MOST_STEPS]:
        name = (say("rank {rank} ", rank=row["rank"]) if several else "") + (
            say("step {step}", step=row["step"]) if row["step"] else say("whole run")
        )
        from_vendor = row.get("computing_us") is None
        shown = row["vendor"] if from_vendor else row
        verdict = say("not in the tasks") if from_vendor else _verdict(row)
        keys = ("computing", "communication", "overlapped", "free", "stage")
        times = [duration(shown[f"{key}_us"]) for key in keys]
        if table:
            cells = (f" {time:>{wide}}" for time, (_, wide) in zip(times, titles, strict=True))
            yield f"  {pad(name, 12)}" + "".join(cells)
        else:
            parts = (f"{title} {time}" for time, (title, _) in zip(times, titles, strict=True))
            yield f"  {name.rstrip()}  " + say(", ").join(parts)
        yield "    " + say("the vendor's own figures: {verdict}", verdict=verdict)
    left = len(report["steps"]) - MOST_STEPS
    if left > 0:
        yield "  " + say("and {count} more steps (see --json)", count=left)


def _verdict(row: dict[str, Any]) -> str:
    if row["vendor"] is None:
        return say("none")
    apart = duration(row["largest_difference_us"])
    if row["agrees"]:
        return say("the same (within {apart})", apart=apart)
    return say("DIFFER by up to {apart}", apart=apart)


def _waits(report: dict[str, Any]) -> Iterator[str]:
    waits = report["waits"]
    yield say("Waits of streams for")
    for cause, title in CAUSES.items():
        found = waits[cause]
        if found["count"]:
            yield f"  {duration(found['us']):>11}  {found['count']:>6} x {say(title)}"
    talk = report["collectives"]
    if talk is not None:
        text = say(
            "collectives: {transit} transfer, {wait} waiting for other cards, {idle} idle",
            transit=duration(talk["transit_us"]), wait=duration(talk["wait_us"]),
            idle=duration(talk["idle_us"]),
        )  # fmt: skip
        yield f"  {duration(talk['elapse_us']):>11}  {talk['count']:>6} x {text}"
    for row in waits["longest"][:5]:
        cause = row["waited_for"] if row["cause"] == "event" else say("the host")
        text = say("{op} for {cause}", op=cut(row["op"], 40), cause=cause)
        yield f"  {duration(row['us']):>11}  {row['stream']}: {text}"


def _types(report: dict[str, Any], width: int) -> Iterator[str]:
    yield say("Where the time goes (share of computing)")
    for row in report["op_types"][:12]:
        time = duration(row["total_us"])
        yield share_row(row["share"], time, row["count"], row["type"], row["core"], width)


def _left_out(report: dict[str, Any]) -> Iterator[str]:
    if report["left_out"]:
        yield say("Left out")
        for reason, count in list(report["left_out"].items())[:8]:
            yield f"  {count} x {translate(reason)}"
