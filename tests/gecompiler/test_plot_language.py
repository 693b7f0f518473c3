"""Plots in Chinese where a font has its letters, in English where none has."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager

from gecompiler import plotting, roofline_plot, timeline_plot
from gecompiler.ir.timeline import Span, Timeline
from gecompiler.lang import use_language
from gecompiler.lang.zh.plots import TEXTS
from gecompiler.roofline_plot import WHOLE, Roof, Spot, write_roofline
from gecompiler.sweep import output
from gecompiler.timeline_plot import write_timeline_plot

TIMELINE = Timeline((Span(0, "a", "MatMul", 0, 0, 0, 9000, 9000, bound_by="fixed"),), model="m")
SPOTS = [Spot(WHOLE, 1e9, 1e6, 10.0, WHOLE), Spot("b", 2e9, 1e6, 10.0, "b")]
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of figures, which are not written: no font is needed to look at them."""
    from matplotlib.text import Text

    found: list[str] = []

    def keep(figure: Any, path: str) -> None:
        found.extend(text.get_text() for text in figure.findobj(Text) if text.get_text())

    for module in (timeline_plot, roofline_plot, output):
        monkeypatch.setattr(module, "save_figure", keep)
    return found


def plots() -> None:
    write_timeline_plot(TIMELINE, "t.svg", "m")
    write_roofline(SPOTS, [Roof("r", 1e6, 1e3)], "r.svg", "m")
    output.write_plot([], "m", "s.svg")


def test_labels_are_chinese_where_a_font_has_them(
    drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plotting, "chinese_font", lambda: "Some Font")
    with use_language("zh"):
        plots()
    for text in ("时间（us）", "关键路径", "启动开销 100%", "整个模型", "时间（ms）"):
        assert text in drawn
    assert TEXTS["speed-up over one stream"] in drawn
    assert not {"critical path", "streams", "the whole model"} & set(drawn)


def test_labels_are_english_where_no_font_has_chinese_letters_which_is_told(
    drawn: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plotting, "chinese_font", lambda: None)
    with use_language("zh"), caplog.at_level(logging.WARNING):
        plots()
    assert "time in us" in drawn
    assert not any(map(CHINESE.search, drawn))
    assert caplog.messages.count(TEXTS[plotting_message()]) == 3


def plotting_message() -> str:
    return next(key for key in TEXTS if key.startswith("no font"))


def test_a_font_without_the_letters_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    latin = font_manager.findfont("DejaVu Sans")
    entry = font_manager.FontEntry(fname=latin, name=plotting.CHINESE_FONTS[0])
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [entry])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [latin])
    assert plotting.chinese_font() is None


def test_a_font_installed_since_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    latin = font_manager.findfont("DejaVu Sans")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken), latin])
    monkeypatch.setattr(plotting, "CHINESE_FONTS", ("DejaVu Sans",))
    monkeypatch.setattr(plotting, "_SAMPLE", "ab")
    assert plotting.chinese_font() == "DejaVu Sans"


def test_english_needs_no_font(monkeypatch: pytest.MonkeyPatch, drawn: list[str]) -> None:
    monkeypatch.setattr(plotting, "chinese_font", lambda: pytest.fail("not asked for"))
    with use_language("en"):
        plots()
    assert "critical path" in drawn


@pytest.mark.skipif(plotting.chinese_font() is None, reason="no font with Chinese letters")
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_chinese_plots_are_written_without_a_letter_missing(tmp_path: Path, suffix: str) -> None:
    with use_language("zh"):
        write_timeline_plot(TIMELINE, str(tmp_path / f"t.{suffix}"))
        write_roofline(SPOTS, [], str(tmp_path / f"r.{suffix}"), "m")
    assert (tmp_path / f"t.{suffix}").stat().st_size > 1000
