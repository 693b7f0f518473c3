"""A compiled model shows itself in a notebook."""

from __future__ import annotations

from gecompiler.compiled import CompiledModel
from gecompiler.units import duration


def test_figures_timeline_and_advice_are_shown(compiled: CompiledModel) -> None:
    text = compiled._repr_html_()
    report = compiled.as_dict()
    assert duration(report["schedule"]["makespan_us"]) in text
    assert text.count("<svg") == 1
    assert "<script" not in text
    for warning in report["warnings"]:
        assert warning["code"] in text


def test_the_timeline_of_a_model_shows_itself(compiled: CompiledModel) -> None:
    assert compiled.timeline._repr_html_() == compiled.compilation.result.timeline._repr_html_()
    assert compiled.schedule._repr_html_().startswith("<div>")
