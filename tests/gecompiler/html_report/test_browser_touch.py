"""Two fingers on the timeline, and what the compiler says in the reader's language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser_help import Reader
from engines import CHROMIUM

from gecompiler.compiled import CompiledModel
from gecompiler.html_report import compilation_subject, page_data, render_page


def touch(reader: Reader, kind: str, *points: tuple[float, float]) -> None:
    if reader.engine is not CHROMIUM:
        pytest.skip("only Chromium's driver has fingers")
    box = reader.js("const b = document.getElementById('lanes').getBoundingClientRect();"
                    "return [b.left, b.top]")  # fmt: skip
    found = [{"x": box[0] + x, "y": box[1] + y, "id": n} for n, (x, y) in enumerate(points)]
    command: dict[str, Any] = {"type": kind, "touchPoints": found}
    reader.driver.execute_cdp_cmd("Input.dispatchTouchEvent", command)


def test_two_fingers_zoom_and_what_is_between_them_stays(browser: Reader, model_page: Path) -> None:
    browser.open(model_page)
    whole = browser.view()
    gutter = browser.js("return gecReport.gutter")
    wide = browser.find("stage").size["width"] - gutter

    def time(x: float) -> float:
        a, b = browser.view()
        return float(a + (x - gutter) / wide * (b - a))

    left, right = 450.0, 550.0
    times = time(left), time(right)
    touch(browser, "touchStart", (left, 20), (right, 20))
    for step in range(1, 6):
        touch(browser, "touchMove", (left - 20 * step, 20), (right + 20 * step, 20))
    browser.settled()
    a, b = browser.view()
    assert b - a == pytest.approx((whole[1] - whole[0]) / 3, rel=0.02)
    assert (time(left - 100), time(right + 100)) == pytest.approx(times, abs=0.01 * whole[1])
    touch(browser, "touchEnd")
    assert browser.picked() is None
    touch(browser, "touchStart", (400, 20), (800, 20))
    for step in range(1, 8):
        touch(browser, "touchMove", (400 + 25 * step, 20), (800 - 25 * step, 20))
    touch(browser, "touchEnd")
    browser.settled()
    assert browser.view() == whole
    assert browser.console() == []


def test_one_finger_drags_after_a_pinch(browser: Reader, model_page: Path) -> None:
    browser.open(model_page)
    browser.keys("w", "w", "w")
    a, b = browser.view()
    touch(browser, "touchStart", (700, 20))
    for step in range(1, 6):
        touch(browser, "touchMove", (700 - 30 * step, 20))
    touch(browser, "touchEnd")
    browser.settled()
    assert browser.view()[0] > a
    assert browser.view()[1] - browser.view()[0] == pytest.approx(b - a)


def test_warnings_findings_and_refusals_are_in_both_languages(
    browser: Reader, compiled: CompiledModel, tmp_path: Path
) -> None:
    subject = compilation_subject(compiled.compilation)
    assert subject.report is not None
    attention, checks = subject.report["attention"], subject.report["verification"]
    refused = {**attention["sites"][0], "status": "refused",
               "reason": "/l/Softmax (Softmax) drops probabilities at random"}  # fmt: skip
    finding = {
        "code": "unwritten",
        "message": "no task writes 'x'",
        "fix": "give 'x' another address",
    }
    report = {
        **subject.report,
        "attention": {**attention, "sites": [refused]},
        "verification": {**checks, "findings": [finding]},
        "warnings": [{"code": "streams-unused", "message": "nobody's text",
                      "hint": "compare with strategy 'auto'"}],
    }  # fmt: skip
    path = tmp_path / "zh.html"
    data = page_data(replace(subject, report=report))
    path.write_text(render_page(data, "zh"), encoding="utf-8")
    browser.open(path)
    warnings = browser.text("warnings-body")
    for text in ("没有任务写出 'x'", "给 'x' 另一个地址", "与策略 'auto' 比较", "nobody's text"):
        assert text in warnings
    assert "/l/Softmax（Softmax）随机丢弃概率" in browser.text("attention-body")
    browser.find("lang").click()
    browser.settled()
    assert "no task writes 'x'" in browser.text("warnings-body")
    assert "drops probabilities at random" in browser.text("attention-body")
