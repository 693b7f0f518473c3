"""The report in the terminal: what overlaps, what waits, why, and what to try."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gecompiler import __version__
from gecompiler.advice import advice
from gecompiler.cards.report_text import cards_lines
from gecompiler.lang import language, say, translate
from gecompiler.lang.width import fitted
from gecompiler.report import build_report
from gecompiler.report_layout import indented, labelled
from gecompiler.report_times import (
    critical_lines,
    hot_lines,
    latency_lines,
    resource_lines,
    stream_lines,
    time_lines,
    wait_lines,
)
from gecompiler.screen import show
from gecompiler.screen import width as terminal_width
from gecompiler.training import training_lines
from gecompiler.units import number

if TYPE_CHECKING:
    from gecompiler.driver import Compilation

INDENT = " " * 13


def print_report(compilation: Compilation) -> None:
    """Prints `report_text`."""
    show(report_text(compilation))


def print_profile(compilation: Compilation) -> None:
    """Prints the timeline: the streams, where the time goes, who waited for whom."""
    width = terminal_width()
    blocks = (
        stream_lines(compilation, width),
        latency_lines(compilation, width),
        critical_lines(compilation, width),
        hot_lines(compilation, width, 15),
        wait_lines(compilation, width),
    )
    show(_joined(blocks))


def report_text(compilation: Compilation, width: int | None = None) -> str:
    """The whole report as text, in the language in use.

    ``width`` is that of the terminal, 96 columns where there is none.
    """
    report = build_report(compilation)
    wide = terminal_width() if width is None else width
    return _joined(
        (
            fitted(_head(report, wide), wide),
            time_lines(report, wide),
            fitted(cards_lines(report), wide),
            fitted(training_lines(report), wide),
            latency_lines(compilation, wide),
            stream_lines(compilation, wide),
            fitted(resource_lines(compilation, report), wide),
            critical_lines(compilation, wide),
            hot_lines(compilation, wide, 8),
            wait_lines(compilation, wide),
            _warnings(report, wide),
            _advice(compilation, report, wide),
        )
    )


def _joined(blocks: Iterable[Iterable[str]]) -> str:
    """The blocks with an empty line between them."""
    texts = ("\n".join(lines) for lines in blocks)
    return "\n\n".join(text for text in texts if text)


def _head(report: dict[str, Any], width: int) -> Iterator[str]:
    model, attention = report["model"], report["attention"]
    sizes = ", ".join(f"{k}={v}" for k, v in model["sizes"].items())
    yield say(
        "gecompiler {version}: {model} on {device}",
        version=__version__, model=model["name"], device=report["device"],
    ) + (f" ({sizes})" if sizes else "")  # fmt: skip
    facts = say(
        "opset {opset}, {imported} ops imported, {compiled} compiled, {parameters} parameters",
        opset=model["opset"], imported=model["ops_imported"], compiled=model["ops_compiled"],
        parameters=number(model["parameters"]),
    )  # fmt: skip
    yield from labelled(say("model"), facts, width)
    if attention["sites"]:
        found = say("{fused} fused, {refused} refused", **_only(attention, "fused", "refused"))
        yield from labelled(say("attention"), found, width)
        yield from _site_lines(attention["sites"], width)
    else:
        yield from labelled(say("attention"), say("none found"), width)
    yield from labelled(say("sync"), _sync(report["sync"]), width)
    yield from _queues(report["streams"], width)
    yield from _durations(report, width)
    checks = report["verification"]
    yield from labelled(say("verified"), _verdict(checks), width)
    for finding in checks["findings"][:5]:
        text = f"{finding['code']}: {translate(finding['message'])}"
        yield from indented(text, width, INDENT)


def _only(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: row[key] for key in keys}


def _sync(sync: dict[str, Any]) -> str:
    count = sync["event_ids"]
    if sync["primitive"] == "notify":
        ids = say("{count} notifies", count=count)
    else:
        ids = say("{count} event ids", count=count)
    return say(
        "{events} waits for {dependencies} dependencies across streams (GE's rules: {by_rule}), "
        "{ids}",
        events=sync["events"], dependencies=sync["cross_stream_dependencies"],
        by_rule=sync["ge_rule_events"], ids=ids,
    )  # fmt: skip


def _verdict(checks: dict[str, Any]) -> str:
    yes = (say("race-free"), say("deadlock-free"), say("within limits"))
    no = (say("NOT race-free"), say("NOT deadlock-free"), say("NOT within limits"))
    keys = ("race_free", "deadlock_free", "within_limits")
    return say(", ").join(y if checks[k] else n for k, y, n in zip(keys, yes, no, strict=True))


def _durations(report: dict[str, Any], width: int) -> Iterator[str]:
    """How much goes by measured times."""
    found = report.get("durations")
    if found is None:
        return
    text = say(
        "{measured} of {ops} ops as measured in {file} ({by_name} by name, {by_shapes} by shapes), "
        "{share:.0%} of the time",
        measured=found["measured_by_name"] + found["measured_by_shapes"],
        ops=found["ops"], file=found["file"], by_name=found["measured_by_name"],
        by_shapes=found["measured_by_shapes"], share=found["measured_share_of_time"],
    )  # fmt: skip
    yield from labelled(say("durations"), text, width)


def _queues(streams: dict[str, Any], width: int) -> Iterator[str]:
    """How many queues hold the streams, where these are too long for one each."""
    physical = streams["physical"]
    count, used = len(physical["streams"]), streams["used"]
    if count > used:
        text = say(
            "{count} physical streams of {entries} entries hold the {used}, with {events} events "
            "between their parts",
            count=count, entries=physical["queue_entries"], used=used, events=count - used,
        )  # fmt: skip
        yield from labelled(say("queues"), text, width)


def _site_lines(sites: list[dict[str, Any]], width: int) -> Iterator[str]:
    """One line per kind of site: sites that differ only by name are counted."""
    kinds: dict[str, int] = defaultdict(int)
    for site in sites:
        kinds[_site_text(site)] += 1
    for text, count in list(kinds.items())[:8]:
        yield from indented(f"{count} x {text}", width, INDENT)
    if len(kinds) > 8:
        yield INDENT + say("and {count} more kinds (see --json)", count=len(kinds) - 8)


def _site_text(site: dict[str, Any]) -> str:
    if site["status"] == "refused":
        return say("refused {name}: {reason}", name=site["name"], reason=translate(site["reason"]))
    grouped = site["kv_heads"] != site["q_heads"]
    wide = site["v_head_dim"] != site["head_dim"]
    bounded = tuple(site["window"]) not in ((-1, -1), (-1, 0))
    heads = say("{q} heads", q=site["q_heads"])
    if grouped:
        heads = say("{q} heads on {kv} KV heads", q=site["q_heads"], kv=site["kv_heads"])
    parts = (
        say("{heads} of {size}", heads=heads, size=site["head_dim"])
        + (f"/{site['v_head_dim']}" if wide else ""),
        say("mask {mask}", mask=site["mask"]),
        say("window {window}", window=site["window"]) if bounded else "",
        say("proven {proven}", proven=site["proven"]) if site["proven"] else "",
        say("softcap {softcap:g}", softcap=site["softcap"]) if site["softcap"] else "",
        say("KV cache") if site["kv_cache"] else "",
    )
    return say(", ").join(filter(None, parts))


def _warnings(report: dict[str, Any], width: int) -> Iterator[str]:
    if not report["warnings"]:
        return
    yield say("Warnings")
    for warning in report["warnings"]:
        yield from indented(f"{warning['code']}: {translate(warning['message'])}", width)
        if warning["hint"]:
            hint = say("hint: {hint}", hint=translate(warning["hint"]))
            yield from indented(hint, width, "    ")


def _advice(compilation: Compilation, report: dict[str, Any], width: int) -> Iterator[str]:
    found = advice(compilation, report, "zh" if language() == "zh" else "en")
    if not found:
        return
    yield say("What to try")
    for text in found:
        yield from indented(f"- {text}", width)
