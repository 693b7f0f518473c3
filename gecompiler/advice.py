"""What a user can do about it: short remedies, each from a figure of the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecompiler.driver import Compilation

Rule = Callable[["Compilation", dict[str, Any]], str | None]


def advice(compilation: Compilation, report: dict[str, Any]) -> list[str]:
    """The remedies that apply, the most telling first."""
    found = (rule(compilation, report) for rule in RULES)
    return [text for text in found if text is not None]


def _idle_share(compilation: Compilation) -> float:
    """The share of the makespan in which no task runs on any stream."""
    timeline = compilation.result.timeline
    marks = sorted((s.start_ns, s.end_ns) for s in timeline.spans)
    covered = end = 0
    for start, stop in marks:
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    return 1 - covered / timeline.makespan_ns if timeline.makespan_ns else 0.0


def _fixed_share(compilation: Compilation) -> float:
    spans = compilation.result.timeline.spans
    total = sum(s.duration_ns for s in spans)
    fixed = sum(s.duration_ns for s in spans if s.bound_by == "fixed")
    return fixed / total if total else 0.0


def launch_bound(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """Small tasks: the time goes into starting them."""
    idle = _idle_share(compilation)
    share = idle + (1 - idle) * _fixed_share(compilation)
    if share < 0.3:
        return None
    return (
        f"{share:.0%} of the time starts tasks instead of running them "
        f"({len(report['streams']['per_stream'])} stream(s), "
        f"{report['model']['ops_compiled']} ops): a larger batch or fewer, larger ops help; "
        "more streams only while the tasks are independent"
    )


def memory_bound(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """HBM is busy most of the time."""
    used = report["resources"]["hbm_utilisation"]
    if used < 0.6:
        return None
    return (
        f"HBM is busy {used:.0%} of the time: two memory-bound kernels side by side gain "
        "nothing; a larger batch (weights are read once for all), smaller element types or "
        "more fusion help"
    )


def compute_bound(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """The cube cores are busy most of the time."""
    used = report["resources"]["cube_utilisation"]
    if used < 0.7:
        return None
    return (
        f"the cube cores are busy {used:.0%} of the time: streams can hide at most the rest; "
        "only less arithmetic (smaller element types, sparsity, a smaller batch) is faster"
    )


def unfused(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """Attention that was not fused, and why."""
    refused = [s for s in report["attention"]["sites"] if s["status"] == "refused"]
    if not refused:
        return None
    first = refused[0]
    return f"{len(refused)} attention(s) not fused; {first['name']}: {first['reason']}"


def more_streams(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """A faster schedule was found than the one chosen."""
    schedule = report["schedule"]
    if not schedule["best_found_us"]:
        return None  # a model without a task
    gain = schedule["makespan_us"] / schedule["best_found_us"] - 1
    if gain < 0.005:
        return None
    return (
        f"a schedule {gain:.1%} faster was found on more streams; auto prefers fewer below "
        "auto_min_gain (set it lower, or give --streams)"
    )


def idle_streams(compilation: Compilation, report: dict[str, Any]) -> str | None:
    """A stream that does next to nothing."""
    rows = report["streams"]["per_stream"]
    idle = [row for row in rows if row["utilisation"] < 0.1]
    if len(rows) < 2 or not idle:
        return None
    names = ", ".join(f"Stream{row['id']} ({row['utilisation']:.0%})" for row in idle)
    return f"{names} nearly idle: its work depends on the others; fewer streams do as well"


RULES: tuple[Rule, ...] = (
    unfused,
    launch_bound,
    memory_bound,
    compute_bound,
    more_streams,
    idle_streams,
)
