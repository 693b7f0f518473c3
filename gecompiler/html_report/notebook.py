"""A compilation in a notebook: the figures, the timeline, warnings and advice. No script."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gecompiler.ir.notebook import table_html, timeline_html
from gecompiler.lang import language, say, translate
from gecompiler.report_layout import bound_text
from gecompiler.units import duration, size

if TYPE_CHECKING:
    from gecompiler.driver import Compilation


def compilation_html(compilation: Compilation) -> str:
    """Plain HTML in which everything from the model is escaped, in the language in use."""
    from gecompiler.advice import advice
    from gecompiler.report import build_report

    report = build_report(compilation)
    schedule, resources = report["schedule"], report["resources"]
    heads = ("Time", "One stream", "Speed-up", "Lower bound", "Overlap", "Waits", "Memory")
    bound = bound_text(schedule)
    row = (
        duration(schedule["makespan_us"]),
        duration(schedule["single_stream_us"]),
        f"{schedule['speedup']:.2f}x",
        f"{duration(schedule['lower_bound_us'])} ({bound})",
        f"{schedule['overlap']:.0%}",
        str(report["sync"]["events"]),
        size(resources["peak_memory_bytes"]),
    )
    notes = [
        f"{w['code']}: {translate(w['message'])}. {translate(w['hint'])}"
        for w in report["warnings"]
    ]
    notes += [translate(f["message"]) for f in report["verification"]["findings"]]
    notes += advice(compilation, report, "zh" if language() == "zh" else "en")
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    table = table_html([say(head) for head in heads], [row])
    return (
        f"<div>{table}{timeline_html(compilation.result.timeline)}"
        f"{f'<ul>{listed}</ul>' if listed else ''}</div>"
    )
