"""The report of a captured run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecompiler.profiles.profile import Profile
from gecompiler.profiles.report import CAUSES, profile_report
from gecompiler.report_timeline import named_bars
from gecompiler.units import duration

MOST_STEPS = 12


def profile_text(profile: Profile) -> str:
    """The whole report."""
    report = profile_report(profile)
    bars = named_bars(profile.timeline, profile.stream_names)
    blocks = (
        _head(report),
        _steps(report),
        ["Streams", *(f"  {line}" for line in bars.splitlines())],
        _waits(report),
        _types(report),
        _left_out(report),
    )
    texts = ["\n".join(lines) for lines in blocks]
    return "\n\n".join(text for text in texts if text)


def _head(report: dict[str, Any]) -> Iterator[str]:
    ranks = len(report["ranks"])
    yield f"{report['name']}: a profile by {report['dialect']}"
    yield (
        f"  {report['tasks']} tasks on {len(report['streams'])} streams"
        + (f" of {ranks} ranks" if ranks > 1 else "")
        + f", {duration(report['makespan_us'])} from the first to the last; "
        f"{report['stream_overlap']:.0%} of the busy time on several streams at once"
    )
    yield f"  read       {_some(report['sources'])}"
    if report["set_aside"]:
        yield f"  set aside  {_some(report['set_aside'])} (one table of operators is read)"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _steps(report: dict[str, Any]) -> Iterator[str]:
    several = len(report["ranks"]) > 1
    yield (
        f"{'Steps':<14} {'computing':>11} {'communication':>14} {'of it hidden':>12} "
        f"{'free':>11} {'stage':>11}  vendor's own figures"
    )
    for row in report["steps"][:MOST_STEPS]:
        name = (f"rank {row['rank']} " if several else "") + (
            f"step {row['step']}" if row["step"] else "whole run"
        )
        from_vendor = row.get("computing_us") is None
        shown = row["vendor"] if from_vendor else row
        verdict = "not in the tasks" if from_vendor else _verdict(row)
        yield (
            f"  {name:<12} {duration(shown['computing_us']):>11} "
            f"{duration(shown['communication_us']):>14} {duration(shown['overlapped_us']):>12} "
            f"{duration(shown['free_us']):>11} {duration(shown['stage_us']):>11}  {verdict}"
        )
    left = len(report["steps"]) - MOST_STEPS
    if left > 0:
        yield f"  and {left} more steps (see --json)"


def _verdict(row: dict[str, Any]) -> str:
    if row["vendor"] is None:
        return "none"
    apart = duration(row["largest_difference_us"])
    return f"the same (within {apart})" if row["agrees"] else f"DIFFER by up to {apart}"


def _waits(report: dict[str, Any]) -> Iterator[str]:
    waits = report["waits"]
    yield "Waits of streams for"
    for cause, title in CAUSES.items():
        found = waits[cause]
        if found["count"]:
            yield f"  {duration(found['us']):>11}  {found['count']:>6} x {title}"
    talk = report["collectives"]
    if talk is not None:
        yield (
            f"  {duration(talk['elapse_us']):>11}  {talk['count']:>6} x collectives: "
            f"{duration(talk['transit_us'])} transfer, {duration(talk['wait_us'])} waiting for "
            f"other cards, {duration(talk['idle_us'])} idle"
        )
    for row in waits["longest"][:5]:
        whom = f"for {row['waited_for']}" if row["cause"] == "event" else "for the host"
        yield f"  {duration(row['us']):>11}  {row['stream']}: {row['op']:.40} {whom}"


def _types(report: dict[str, Any]) -> Iterator[str]:
    yield "Where the time goes (share of computing)"
    for row in report["op_types"][:12]:
        yield (
            f"  {row['share']:5.1%}  {duration(row['total_us']):>11}  {row['count']:>6} x "
            f"{row['type']:<32.32} {row['core']}"
        )


def _left_out(report: dict[str, Any]) -> Iterator[str]:
    if report["left_out"]:
        yield "Left out"
        for reason, count in list(report["left_out"].items())[:8]:
            yield f"  {count} x {reason}"
