"""The report's figures of time: latency and its parts, streams, resources, ops, waits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gecompiler.ir.schedule import Task
from gecompiler.ir.schedule_verify.parts import POINT_TO_POINT, shared_name
from gecompiler.ir.timeline import Span
from gecompiler.lang import say
from gecompiler.lang.width import fitted, tail, wrap
from gecompiler.latency import latency_split
from gecompiler.like_ranks import like_ranks
from gecompiler.report_layout import bound_text, figure, resource_name, share_row
from gecompiler.report_timeline import bar_width, rank_prefix, stream_bars
from gecompiler.units import duration, size

if TYPE_CHECKING:
    from gecompiler.driver import Compilation

_NUMBER = re.compile(r"\d+")

MOST_BOUNDS = 4
"""So many bounds are shown; report.json has all."""


def time_lines(report: dict[str, Any], width: int) -> Iterator[str]:
    """How long it takes, on how many streams, and how far from the best that is."""
    schedule, streams = report["schedule"], report["streams"]
    requested = "auto" if streams["requested"] is None else str(streams["requested"])
    chosen = streams["chosen"]
    strategy = chosen if chosen == streams["strategy"] else f"{streams['strategy']}: {chosen}"
    title = say(
        "Time: {time} on {used} stream(s) (strategy {strategy}, streams requested {requested})",
        time=duration(schedule["makespan_us"]), used=streams["used"], strategy=strategy,
        requested=requested,
    )  # fmt: skip
    yield from fitted([title], width)
    if streams["micro_batches"]:
        sizes = streams["micro_batches"]
        every = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[-1]} / {sizes[0]}"
        text = say(
            "in {count} micro-batches of {every}; iterations back to back every {period}",
            count=len(sizes), every=every, period=duration(schedule["period_us"]),
        )  # fmt: skip
        yield from figure(say("batch"), str(sum(sizes)), text, width)
    text = say(
        "speed-up {speedup:.2f}x, overlap {overlap:.0%}",
        speedup=schedule["speedup"], overlap=schedule["overlap"],
    )  # fmt: skip
    yield from figure(say("one stream"), duration(schedule["single_stream_us"]), text, width)
    yield from figure(say("best found"), duration(schedule["best_found_us"]), "", width)
    if len(schedule["by_streams"]) > 1:
        rows = schedule["by_streams"]
        text = ", ".join(_on_streams(row, schedule["single_stream_us"]) for row in rows)
        yield from figure(say("by streams"), "", text, width)
    yield from _bound_lines(schedule, streams["used"], width)
    solver = schedule["solver"]
    if solver is not None:
        yield from figure(say("solver"), duration(solver["makespan_us"]), _solver(solver), width)


def _bound_lines(schedule: dict[str, Any], used: int, width: int) -> Iterator[str]:
    bound = schedule["lower_bound_us"]
    gap = schedule["best_found_us"] / bound - 1 if bound else 0.0
    text = say(
        "by {resource}; the best found is at most {gap:.1%} above the optimum",
        resource=bound_text(schedule), gap=gap,
    )  # fmt: skip
    yield from figure(say("lower bound"), duration(bound), text, width)
    critical = duration(schedule["critical_path_us"])
    yield from figure(say("longest chain"), critical, _bounds(schedule), width)
    if schedule["next_stream"] is None or len(schedule["by_streams"]) < 2:
        yield from figure(say("more streams"), "", _more_streams(schedule, used), width)


def _on_streams(row: dict[str, Any], single_us: float) -> str:
    time = row["makespan_us"]
    if row["streams"] == 1 or not time:
        return f"{row['streams']}: {duration(time)}"
    return f"{row['streams']}: {duration(time)} ({single_us / time:.2f}x)"


def _solver(solver: dict[str, Any]) -> str:
    proof = say("proven the best") if solver["proven"] else say("within {gap:.1%} of it", **solver)
    return say(
        "at fixed rates, at least {bound}: {proof} (limit {limit:g} s, seed {seed})",
        bound=duration(solver["bound_us"]), proof=proof, limit=solver["limit_seconds"],
        seed=solver["seed"],
    )  # fmt: skip


def _bounds(schedule: dict[str, Any]) -> str:
    """What else bounds the time, the highest first."""
    others = {k: us for k, us in schedule["bounds"].items() if k != "critical_path"}
    ranked = sorted(others.items(), key=lambda item: (-item[1], item[0]))
    bounds = ", ".join(f"{resource_name(name)} {duration(us)}" for name, us in ranked[:MOST_BOUNDS])
    return say("of dependencies, alone; other bounds: {bounds}", bounds=bounds)


def _more_streams(schedule: dict[str, Any], used: int) -> str:
    found = schedule["next_stream"]
    if found is None:
        if max((row["streams"] for row in schedule["candidates"]), default=1) <= used:
            return say("none were tried; at most {gap:.1%} is left to gain", gap=schedule["gap"])
        return say(
            "nothing faster was found; at most {gap:.1%} is left to gain", gap=schedule["gap"]
        )
    return say(
        "on {streams}: {time}, {gain:.1%} faster",
        streams=found["streams"], time=duration(found["makespan_us"]), gain=found["gain"],
    )  # fmt: skip


def latency_lines(compilation: Compilation, width: int) -> Iterator[str]:
    """What the time consists of, along the tasks that held up each other."""
    split = latency_split(compilation.result.timeline)
    if not split.tasks:
        return
    title = say(
        "Latency split ({count} of {tasks} tasks held up each other up to the end)",
        count=len(split.tasks), tasks=len(compilation.result.schedule.tasks),
    )  # fmt: skip
    yield from fitted([title], width)
    rows = [(ns, _limited(name)) for name, ns in split.running]
    rows += [
        (split.between_ns, say("between the tasks: task gaps, events")),
        (split.host_ns, say("the host issuing tasks: no task before held these up")),
    ]
    for ns, text in sorted(rows, key=lambda row: -row[0]):
        if ns > 0.0005 * split.makespan_ns:
            part = ns / split.makespan_ns
            head = f"  {part:5.1%}  {duration(ns / 1000):>11}  "
            yield from _hanging(head, text, width)
    if split.slowed_ns > 0:
        slowed = duration(split.slowed_ns / 1000)
        text = say("{slowed} of it: sharing resources with other streams", slowed=slowed)
        yield from _hanging(" " * 22, text, width)


def _limited(name: str) -> str:
    if name == "fixed":
        return say("starting the tasks (fixed costs of each)")
    if name == "peers":
        return say("waiting for other cards")
    return say("tasks limited by {resource}", resource=name or "?")


def _hanging(head: str, text: str, width: int) -> Iterator[str]:
    yield from wrap(text, width, head, " " * len(head))


def stream_lines(compilation: Compilation, width: int) -> Iterator[str]:
    """A bar per stream of the device."""
    yield say("Streams")
    limit = compilation.device.limits.max_streams
    bars = stream_bars(compilation.result.timeline, limit, bar_width(width))
    for line in bars.splitlines():
        yield f"  {line}"


def resource_lines(compilation: Compilation, report: dict[str, Any]) -> Iterator[str]:
    """How busy the cores and the memory are, and what fills the memory."""
    found = report["resources"]
    memory = compilation.device.limits.memory_bytes
    yield say(
        "Resources: cube {cube:.0%}, vector {vector:.0%}, HBM {hbm:.0%} ({moved} moved)",
        cube=found["cube_utilisation"], vector=found["vector_utilisation"],
        hbm=found["hbm_utilisation"], moved=size(found["hbm_bytes"]),
    )  # fmt: skip
    trained = report.get("training") is not None
    kinds = {
        "weight": say("weights"),
        "state": say("parameters, optimizer") if trained else say("state (KV cache)"),
        "activation": say("activations"),
    }
    parts = [f"{text} {size(n)}" for k, text in kinds.items() if (n := found[f"{k}_bytes"])]
    yield "  " + say(
        "memory {peak} of {all} ({parts}); {live} live at once",
        peak=size(found["peak_memory_bytes"]), all=size(memory), parts=", ".join(parts),
        live=size(found["live_memory_bytes"]),
    )  # fmt: skip


def critical_lines(compilation: Compilation, width: int) -> Iterator[str]:
    """The ops that the critical path spends most time in; nothing where it has every task."""
    timeline = compilation.result.timeline
    split = latency_split(timeline)
    if len(split.tasks) in (0, len(timeline.spans)):
        return
    yield from fitted([say("Critical path: its longest ops (share of the time)")], width)
    on_path = set(split.tasks)
    spans = [span for span in timeline.spans if span.task in on_path]
    yield from _ranked(compilation, spans, split.makespan_ns, 5, width)


def hot_lines(compilation: Compilation, width: int, count: int) -> Iterator[str]:
    """The kinds of ops that take most time, and what limits each."""
    spans = compilation.result.timeline.spans
    if not spans:
        return
    yield from fitted([say("Where the time goes (share of busy time, what limits it)")], width)
    yield from _ranked(compilation, spans, sum(s.duration_ns for s in spans), count, width)


def _ranked(
    compilation: Compilation, spans: Iterable[Span], total: int, count: int, width: int
) -> Iterator[str]:
    tasks = compilation.result.schedule.tasks
    times: dict[tuple[str, str], int] = defaultdict(int)
    bounds: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for span in spans:
        key = (tasks[span.task].group, span.op_type)
        times[key] += span.duration_ns
        counts[key] += 1
        bounds[key][span.bound_by or "-"] += span.duration_ns
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    for key, time in ranked[:count]:
        limits = max(sorted(bounds[key]), key=lambda b: bounds[key][b])
        name = " ".join(part for part in key if part)
        end = resource_name(limits)
        yield share_row(time / (total or 1), duration(time / 1000), counts[key], name, end, width)


def wait_lines(compilation: Compilation, width: int) -> Iterator[str]:
    """The longest waits of streams for each other; those that differ by numbers count together."""
    timeline = compilation.result.timeline
    waits = [s for s in timeline.spans if s.wait_cause == "event" and s.wait_ns > 0]
    if not waits:
        return
    tasks = compilation.result.schedule.tasks
    total = duration(sum(s.wait_ns for s in waits) / 1000)
    yield say("Longest waits ({count} in all, {total})", count=len(waits), total=total)
    alike = like_ranks(timeline)
    like = {ranks[0]: ranks for ranks in alike}
    groups: dict[tuple[Any, ...], list[Span]] = defaultdict(list)
    for span in waits:
        if span.rank not in like:  # one that runs like it is shown
            continue
        kind = tuple(_NUMBER.sub("#", text) for text in _pair(span, tasks))
        groups[span.rank, span.stream, *kind].append(span)
    ranked = sorted(groups.items(), key=lambda row: (-sum(s.wait_ns for s in row[1]), row[0]))
    several = sum(map(len, alike)) > 1
    for (rank, stream, *numberless), spans in ranked[:5]:
        time = duration(sum(s.wait_ns for s in spans) / 1000)
        shown = _pair(spans[0], tasks) if len(spans) == 1 else numberless
        op, awaited = (tail(name, width - 24) for name in shown)
        text = say("Stream{stream} {op} for {cause}", stream=stream, op=op, cause=awaited)
        text = rank_prefix(like[rank]) + text if several else text
        yield from _hanging(f"  {time:>11}  {len(spans):>6} x ", text, width)


def _pair(span: Span, tasks: Sequence[Task]) -> tuple[str, str]:
    """Who waited for whom, without the rank, of which something else tells."""
    waiting = _named(tasks[span.task])
    return waiting, "?" if span.waited_for is None else _named(tasks[span.waited_for])


def _named(task: Task) -> str:
    name = shared_name(task.name, task.rank)
    return f"{task.op_type} {name}" if task.op_type in POINT_TO_POINT else name
