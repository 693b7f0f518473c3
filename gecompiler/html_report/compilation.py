"""The page of a compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecompiler.html_report.data import Subject, page_data
from gecompiler.html_report.page import LANGUAGES, render_page

if TYPE_CHECKING:
    from gecompiler.driver import Compilation


def compilation_subject(compilation: Compilation, title: str = "") -> Subject:
    """All that a compilation knows that a page shows; the title is the model's name if empty."""
    from gecompiler.advice import advice
    from gecompiler.report import build_report

    result = compilation.result
    report = build_report(compilation)
    types = compilation.graph.types
    return Subject(
        timeline=result.timeline,
        schedule=result.schedule,
        report=report,
        advice={lang: advice(compilation, report, lang) for lang in LANGUAGES},
        single=result.single_timeline,
        shapes={name: str(found) for name, found in types.items() if found is not None},
        title=title or compilation.source.graph.name,
    )


def compilation_page(compilation: Compilation, lang: str = "en", title: str = "") -> str:
    """The HTML text; UsageError for a language there is no text in."""
    return render_page(page_data(compilation_subject(compilation, title)), lang)
