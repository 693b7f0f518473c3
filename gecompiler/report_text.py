"""The report in the terminal: what overlaps, what waits, why, and what to try."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gecompiler import __version__
from gecompiler.advice import advice
from gecompiler.report import build_report
from gecompiler.report_timeline import stream_bars
from gecompiler.units import duration, number, size

if TYPE_CHECKING:
    from gecompiler.driver import Compilation

WIDTH = 96


MOST_BOUNDS = 4
"""So many bounds are shown; report.json has all."""


def print_report(compilation: Compilation) -> None:
    """Prints `report_text`."""
    print(report_text(compilation))  # noqa: T201  (printing is what it is for)


def print_profile(compilation: Compilation) -> None:
    """Prints the timeline: the streams, where the time goes, who waited for whom."""
    lines = [*_streams(compilation), "", *_hot(compilation, 15), "", *_waits(compilation)]
    print("\n".join(lines))  # noqa: T201  (printing is what it is for)


def report_text(compilation: Compilation) -> str:
    """The whole report as text."""
    report = build_report(compilation)
    blocks: list[Iterable[str]] = [
        _head(report),
        _time(report),
        _streams(compilation),
        _resources(compilation, report),
        _hot(compilation, 8),
        _waits(compilation),
        _warnings(report),
        _advice(compilation, report),
    ]
    texts = ["\n".join(lines) for lines in blocks]
    return "\n\n".join(text for text in texts if text)


def _head(report: dict[str, Any]) -> Iterator[str]:
    model, attention, sync = report["model"], report["attention"], report["sync"]
    sizes = ", ".join(f"{k}={v}" for k, v in model["sizes"].items())
    yield f"gecompiler {__version__}: {model['name']} on {report['device']}" + (
        f" ({sizes})" if sizes else ""
    )
    yield (
        f"  model      opset {model['opset']}, {model['ops_imported']} ops imported, "
        f"{model['ops_compiled']} compiled, {number(model['parameters'])} parameters"
    )
    if attention["sites"]:
        yield f"  attention  {attention['fused']} fused, {attention['refused']} refused"
        yield from _site_lines(attention["sites"])
    else:
        yield "  attention  none found"
    yield (
        f"  sync       {sync['events']} waits for {sync['cross_stream_dependencies']} "
        f"dependencies across streams (GE's rules: {sync['ge_rule_events']}), "
        f"{sync['event_ids']} {'notifies' if sync['primitive'] == 'notify' else 'event ids'}"
    )
    yield from _queues(report["streams"])
    yield from _durations(report)
    checks = report["verification"]
    names = {"race_free": "race-free", "deadlock_free": "deadlock-free"}
    verdict = [text if checks[key] else f"NOT {text}" for key, text in names.items()]
    verdict.append("within limits" if checks["within_limits"] else "NOT within limits")
    yield f"  verified   {', '.join(verdict)}"
    for finding in checks["findings"][:5]:
        yield from _wrapped(f"{finding['code']}: {finding['message']}", "             ")


def _durations(report: dict[str, Any]) -> Iterator[str]:
    """How much goes by measured times."""
    found = report.get("durations")
    if found is not None:
        measured = found["measured_by_name"] + found["measured_by_shapes"]
        yield (
            f"  durations  {measured} of {found['ops']} ops as measured in {found['file']} "
            f"({found['measured_by_name']} by name, {found['measured_by_shapes']} by shapes), "
            f"{found['measured_share_of_time']:.0%} of the time"
        )


def _queues(streams: dict[str, Any]) -> Iterator[str]:
    """How many queues hold the streams, where these are too long for one each."""
    physical = streams["physical"]
    count, entries = len(physical["streams"]), physical["queue_entries"]
    if count > streams["used"]:
        yield (
            f"  queues     {count} physical streams of {entries} entries hold the "
            f"{streams['used']}, with {count - streams['used']} events between their parts"
        )


def _site_lines(sites: list[dict[str, Any]]) -> Iterator[str]:
    """One line per kind of site: sites that differ only by name are counted."""
    kinds: dict[str, int] = defaultdict(int)
    for site in sites:
        kinds[_site_text(site)] += 1
    for text, count in list(kinds.items())[:8]:
        yield from _wrapped(f"{count} x {text}", "             ")
    if len(kinds) > 8:
        yield f"             and {len(kinds) - 8} more kinds (see --json)"


def _site_text(site: dict[str, Any]) -> str:
    if site["status"] == "refused":
        return f"refused {site['name']}: {site['reason']}"
    grouped = site["kv_heads"] != site["q_heads"]
    wide = site["v_head_dim"] != site["head_dim"]
    bounded = tuple(site["window"]) not in ((-1, -1), (-1, 0))
    parts = (
        f"{site['q_heads']} heads",
        f" on {site['kv_heads']} KV heads" if grouped else "",
        f" of {site['head_dim']}",
        f"/{site['v_head_dim']}" if wide else "",
        f", mask {site['mask']}",
        f", window {site['window']}" if bounded else "",
        f", proven {site['proven']}" if site["proven"] else "",
        f", softcap {site['softcap']:g}" if site["softcap"] else "",
        ", KV cache" if site["kv_cache"] else "",
    )
    return "".join(parts)


def _time(report: dict[str, Any]) -> Iterator[str]:
    schedule, streams = report["schedule"], report["streams"]
    makespan, bound = schedule["makespan_us"], schedule["lower_bound_us"]
    requested = "auto" if streams["requested"] is None else str(streams["requested"])
    chosen = streams["chosen"]
    strategy = chosen if chosen == streams["strategy"] else f"{streams['strategy']}: {chosen}"
    yield (
        f"Time: {duration(makespan)} on {streams['used']} stream(s) "
        f"(strategy {strategy}, streams requested {requested})"
    )
    if streams["micro_batches"]:
        sizes = streams["micro_batches"]
        every = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[-1]} or {sizes[0]}"
        yield (
            f"  batch        {sum(sizes):>12}   in {len(sizes)} micro-batches of {every}; "
            f"iterations back to back every {duration(schedule['period_us'])}"
        )
    yield (
        f"  one stream   {duration(schedule['single_stream_us']):>12}   "
        f"speed-up {schedule['speedup']:.2f}x, overlap {schedule['overlap']:.0%}"
    )
    yield f"  best found   {duration(schedule['best_found_us']):>12}"
    gap = schedule["best_found_us"] / bound - 1 if bound else 0.0
    yield (
        f"  lower bound  {duration(bound):>12}   by {schedule['binding_resource']}; "
        f"the best found is at most {gap:.1%} above the optimum"
    )
    yield f"  critical path {duration(schedule['critical_path_us']):>11}   {_bounds(schedule)}"
    yield f"  more streams                {_more_streams(schedule)}"
    solver = schedule["solver"]
    if solver is not None:
        proof = "proven the best" if solver["proven"] else f"within {solver['gap']:.1%} of it"
        yield (
            f"  solver       {duration(solver['makespan_us']):>12}   at fixed rates, at least "
            f"{duration(solver['bound_us'])}: {proof} "
            f"(limit {solver['limit_seconds']:g} s, seed {solver['seed']})"
        )


def _bounds(schedule: dict[str, Any]) -> str:
    """What else bounds the time, the highest first."""
    others = {k: us for k, us in schedule["bounds"].items() if k != "critical_path"}
    ranked = sorted(others.items(), key=lambda item: (-item[1], item[0]))
    return "bounds: " + ", ".join(f"{name} {duration(us)}" for name, us in ranked[:MOST_BOUNDS])


def _more_streams(schedule: dict[str, Any]) -> str:
    found = schedule["next_stream"]
    if found is None:
        return f"nothing faster was found; at most {schedule['gap']:.1%} can be"
    return f"on {found['streams']}: {duration(found['makespan_us'])}, {found['gain']:.1%} faster"


def _streams(compilation: Compilation) -> Iterator[str]:
    yield "Streams"
    limit = compilation.device.limits.max_streams
    for line in stream_bars(compilation.result.timeline, limit).splitlines():
        yield f"  {line}"


def _resources(compilation: Compilation, report: dict[str, Any]) -> Iterator[str]:
    found = report["resources"]
    memory = compilation.device.limits.memory_bytes
    yield (
        f"Resources: cube {found['cube_utilisation']:.0%}, "
        f"vector {found['vector_utilisation']:.0%}, HBM {found['hbm_utilisation']:.0%} "
        f"({size(found['hbm_bytes'])} moved)"
    )
    kinds = {"weight": "weights", "state": "state (KV cache)", "activation": "activations"}
    parts = [f"{text} {size(n)}" for k, text in kinds.items() if (n := found[f"{k}_bytes"])]
    yield (
        f"  memory {size(found['peak_memory_bytes'])} of {size(memory)} "
        f"({', '.join(parts)}); {size(found['live_memory_bytes'])} live at once"
    )


def _hot(compilation: Compilation, count: int) -> Iterator[str]:
    spans, tasks = compilation.result.timeline.spans, compilation.result.schedule.tasks
    times: dict[tuple[str, str], int] = defaultdict(int)
    bounds: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for span in spans:
        key = (tasks[span.task].group, span.op_type)
        times[key] += span.duration_ns
        counts[key] += 1
        bounds[key][span.bound_by or "-"] += span.duration_ns
    total = sum(times.values()) or 1
    yield "Where the time goes (share of busy time, what limits it)"
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    for key, time in ranked[:count]:
        limits = max(sorted(bounds[key]), key=lambda b: bounds[key][b])
        name = " ".join(part for part in key if part)
        yield (
            f"  {time / total:5.1%}  {duration(time / 1000):>11}  {counts[key]:>6} x "
            f"{name:<40.40} {limits}"
        )


def _waits(compilation: Compilation) -> Iterator[str]:
    timeline = compilation.result.timeline
    waits = [s for s in timeline.spans if s.wait_cause == "event" and s.wait_ns > 0]
    if not waits:
        return
    names = {task.id: task.name for task in compilation.result.schedule.tasks}
    total = sum(s.wait_ns for s in waits)
    yield f"Longest waits ({len(waits)} in all, {duration(total / 1000)})"
    for span in sorted(waits, key=lambda s: (-s.wait_ns, s.task))[:5]:
        cause = names.get(span.waited_for, "?") if span.waited_for is not None else "?"
        yield f"  {duration(span.wait_ns / 1000):>11}  Stream{span.stream} {span.name} for {cause}"


def _warnings(report: dict[str, Any]) -> Iterator[str]:
    if not report["warnings"]:
        return
    yield "Warnings"
    for warning in report["warnings"]:
        yield from _wrapped(f"{warning['code']}: {warning['message']}", "  ")
        if warning["hint"]:
            yield from _wrapped(f"hint: {warning['hint']}", "    ")


def _advice(compilation: Compilation, report: dict[str, Any]) -> Iterator[str]:
    found = advice(compilation, report)
    if not found:
        return
    yield "What to try"
    for text in found:
        yield from _wrapped(f"- {text}", "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [
        indent
    ]
