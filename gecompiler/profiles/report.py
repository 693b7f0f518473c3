"""What a captured run shows, as data: steps, streams, waits and their causes, time by type."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from gecompiler.backends.trace.intervals import StepTime
from gecompiler.backends.trace.recording import COMMUNICATION, COPY
from gecompiler.ir.timeline import Span
from gecompiler.profiles.profile import Profile

SCHEMA_VERSION = 1
TOLERANCE_NS = 1000
"""The vendor adds doubles of microseconds since 1970, which are a quarter of one apart."""

CAUSES = {
    "event": "another stream",
    "resource": "the host, or nothing that was recorded",
    "stream": "the task before it",
    "start": "the first task of its stream",
}
"""What the causes of waits are called."""

_PARTS = (
    *("computing", "communication", "overlapped", "not_overlapped", "free", "stage", "bubble"),
    "preparing",
)


def profile_report(profile: Profile) -> dict[str, Any]:
    """The report as plain data; the same profile gives the same data."""
    timeline = profile.timeline
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "profile",
        "name": timeline.model,
        "dialect": profile.dialect,
        "sources": list(profile.sources),
        "set_aside": list(profile.set_aside),
        "left_out": dict(profile.left_out),
        "tasks": len(timeline.spans),
        "ranks": sorted({s.rank for s in timeline.spans}),
        "makespan_us": timeline.makespan_ns / 1000,
        "stream_overlap": timeline.overlap,
        "steps": step_rows(profile),
        "streams": _streams(profile),
        "waits": _waits(profile),
        "op_types": _op_types(profile),
        "collectives": _collectives(profile),
    }


def step_rows(profile: Profile) -> list[dict[str, Any]]:
    """Each step as reckoned from the tasks, beside what the vendor's file says of it."""
    vendor = {(s.device, s.step): s for s in profile.vendor_steps}
    taken: set[tuple[int, str]] = set()
    rows: list[dict[str, Any]] = []
    for ours in profile.steps:
        theirs = vendor.get((ours.device, ours.step))
        if theirs is None:
            theirs = _only_step(profile, ours.device)
        if theirs is not None:
            taken.add((theirs.device, theirs.step))
        rows.append(_step_row(ours, theirs))
    rest = [s for key, s in vendor.items() if key not in taken]
    return rows + [{"rank": s.device, "step": s.step, "vendor": _us(s)} for s in rest]


def _only_step(profile: Profile, device: int) -> StepTime | None:
    """The vendor's row of a card where it and we know one step, and one does not name it."""
    if len(profile.steps) == len(profile.vendor_steps) == 1:
        return profile.vendor_steps[0]
    found = [s for s in profile.vendor_steps if s.device == device]
    one = sum(s.device == device for s in profile.steps) == len(found) == 1
    return found[0] if one else None


def _step_row(ours: StepTime, theirs: StepTime | None) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": ours.device, "step": ours.step, **_us(ours)}
    if theirs is None:
        return row | {"vendor": None}
    apart = {
        part: abs(a - b)
        for part in _PARTS
        if (a := getattr(ours, part)) is not None and (b := getattr(theirs, part)) is not None
    }
    if ours.preparing is None and theirs.preparing is not None:
        row["preparing_us"] = theirs.preparing / 1000
    agrees = all(difference <= TOLERANCE_NS for difference in apart.values())
    return row | {
        "vendor": _us(theirs),
        "largest_difference_us": max(apart.values()) / 1000,
        "agrees": agrees,
    }


def _us(step: StepTime) -> dict[str, float | None]:
    found = {part: getattr(step, part) for part in _PARTS}
    return {f"{k}_us": None if ns is None else ns / 1000 for k, ns in found.items()}


def _streams(profile: Profile) -> list[dict[str, Any]]:
    timeline = profile.timeline
    whole = timeline.makespan_ns or 1
    rows = []
    for (rank, stream), spans in timeline.streams.items():
        busy = sum(s.duration_ns for s in spans)
        rows.append(
            {
                "rank": rank,
                "id": stream,
                "name": profile.stream_names.get((rank, stream), f"Stream {stream}"),
                "tasks": len(spans),
                "busy_us": busy / 1000,
                "utilisation": busy / whole,
                "waits": _by_cause(spans),
            }
        )
    return rows


def _by_cause(spans: tuple[Span, ...]) -> dict[str, dict[str, float]]:
    found: dict[str, list[int]] = {cause: [0, 0] for cause in CAUSES}
    for span in spans:
        if span.wait_ns > 0:
            found[span.wait_cause][0] += 1
            found[span.wait_cause][1] += span.wait_ns
    return {k: {"count": count, "us": ns / 1000} for k, (count, ns) in found.items()}


def _waits(profile: Profile) -> dict[str, Any]:
    spans = profile.timeline.spans
    longest = sorted(
        (s for s in spans if s.wait_ns > 0 and s.wait_cause in ("event", "resource")),
        key=lambda s: (-s.wait_ns, s.task),
    )[:20]
    return {
        **_by_cause(spans),
        "longest": [
            {
                "op": s.name,
                "rank": s.rank,
                "stream": profile.stream_names.get((s.rank, s.stream), str(s.stream)),
                "us": s.wait_ns / 1000,
                "cause": s.wait_cause,
                "waited_for": None if s.waited_for is None else spans[s.waited_for].name,
            }
            for s in longest
        ],
    }


def _op_types(profile: Profile) -> list[dict[str, Any]]:
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    for span in profile.timeline.spans:
        kind = profile.facts[span.task].task_type
        if kind not in (COMMUNICATION, COPY):
            times[span.op_type, kind].append(span.duration_ns)
    whole = math.fsum(map(sum, times.values())) or 1
    ranked = sorted(times.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [
        {
            "type": op_type,
            "core": core,
            "count": len(found),
            "total_us": math.fsum(found) / 1000,
            "min_us": min(found) / 1000,
            "mean_us": sum(found) / 1000 / len(found),
            "max_us": max(found) / 1000,
            "share": sum(found) / whole,
        }
        for (op_type, core), found in ranked
    ]


def _collectives(profile: Profile) -> dict[str, Any] | None:
    """Milliseconds of all collectives, as ``communication.json`` divides them."""
    found = profile.collectives
    if not found:
        return None
    parts = ("elapse", "transit", "wait", "idle")
    sums = {f"{p}_us": math.fsum(times[p] for times in found.values()) * 1000 for p in parts}
    return {"count": len(found), **sums}
