"""Several cards on the page: like ones as one, partners of collectives, the table of cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_help import Reader

import gecompiler as ge
from gecompiler.compiled import CompiledModel
from gecompiler.html_report import page_data, render_page
from gecompiler.html_report.compilation import compilation_subject


@pytest.fixture(scope="package")
def pipeline(tiny_path: Path) -> CompiledModel:
    """Two stages of two cards each, which run alike."""
    return ge.compile(tiny_path, batch=2, seq=16, tp=2, pp=2)


@pytest.fixture
def reader(
    browser: Reader, pipeline: CompiledModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("cards") / "cards.html"
    path.write_text(
        render_page(page_data(compilation_subject(pipeline.compilation))), encoding="utf-8"
    )
    browser.open(path)
    yield browser
    assert browser.console() == []


def lanes_high(reader: Reader) -> float:
    high: float = reader.js("return document.getElementById('lanes').clientHeight")
    return high


def test_like_cards_share_their_lanes_until_told_apart(
    reader: Reader, pipeline: CompiledModel
) -> None:
    streams = pipeline.compilation.result.timeline.streams
    together = lanes_high(reader)
    assert reader.find("folds").get_attribute("aria-pressed") == "true"
    reader.keys("g")
    apart = lanes_high(reader)
    assert reader.find("folds").get_attribute("aria-pressed") == "false"
    assert apart - together == 48 * len(streams) / 2
    reader.find("folds").click()
    reader.settled()
    assert lanes_high(reader) == together


def test_a_card_that_shares_its_lanes_can_be_picked(reader: Reader) -> None:
    last = reader.js("return gecReport.tasks") - 1
    reader.find("find").send_keys(reader.js("return gecReport.taskName(arguments[0])", last))
    reader.find("find").send_keys("\ue007")
    assert reader.picked() == reader.js("return gecReport.taskName(arguments[0])", last)
    assert "Card 3" in reader.text("details")
    assert reader.js("return gecReport.pointOf(arguments[0])[1]", last) < lanes_high(reader)


def test_a_collective_names_its_partners(reader: Reader, pipeline: CompiledModel) -> None:
    tasks = pipeline.schedule.tasks
    first = next(t for t in tasks if t.op_type == "AllReduce" and t.rank == 0)
    partner = next(t for t in tasks if t.name == first.name.replace("0:", "1:", 1))
    reader.find("find").send_keys(first.name)
    reader.find("find").send_keys("\ue007")
    reader.settled()
    assert reader.picked() == first.name
    assert "Together with 1 on other cards" in reader.text("details")
    reader.js(
        "[...document.querySelectorAll('#details .link')]"
        ".find(n => n.textContent.startsWith('card 1,')).click()"
    )
    assert reader.picked() == partner.name


def test_the_table_of_cards_has_a_row_for_each_kind(
    reader: Reader, pipeline: CompiledModel
) -> None:
    found = pipeline.as_dict()["parallel"]
    text = reader.text("cards-body")
    assert "4 (pp 2 × tp 2)" in text
    assert found["topology"] in text
    assert "2 stages, 2 micro-batches, 1f1b" in text
    cells = reader.js(
        "return [...document.querySelectorAll('#cards-body tbody tr')]"
        ".map(row => row.children[0].textContent)"
    )
    assert cells == ["0–1", "2–3"]


def test_one_card_has_no_such_table(browser: Reader, model_page: Path) -> None:
    browser.open(model_page)
    assert not browser.find("cards").is_displayed()
    assert not browser.find("folds").is_displayed()
