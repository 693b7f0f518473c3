"""A reader in a browser: clicks, wheel, drags, keys, search; and no complaints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser_help import Reader
from engines import CHROMIUM
from schedule_help import layered_subject

from gecompiler.compiled import CompiledModel
from gecompiler.html_report import Subject, compilation_subject, page_data, render_page
from gecompiler.ir.timeline import Timeline

HOSTILE = "</script><img src=x onerror=\"document.title='broken in'\"><b>"


@pytest.fixture
def reader(browser: Reader, model_page: Path) -> Iterator[Reader]:
    """On the small model's page, which has nothing to complain of afterwards."""
    browser.open(model_page)
    yield browser
    assert browser.console() == []
    assert browser.js("return performance.getEntriesByType('resource').length") == 0


def longest(reader: Reader) -> int:
    """The task that is easiest to hit."""
    found: int = reader.js("return gecReport.longest()")
    return found


def test_the_summary_says_what_binds_waits_and_can_change(
    reader: Reader, compiled: CompiledModel
) -> None:
    schedule = compiled.as_dict()["schedule"]
    tiles = reader.text("tiles")
    assert f"{schedule['makespan_us']:.2f} us" in tiles
    assert f"{schedule['speedup']:.2f}×" in tiles
    assert "start-up" in reader.text("binds")
    assert "Waits for other streams" in reader.text("waits")
    assert reader.text("change").startswith("What to change")
    assert "2 fused" in reader.text("attention-body")
    assert "none" not in reader.text("warnings-body").lower() or not compiled.as_dict()["warnings"]


def test_a_click_picks_an_op_and_tells_of_it(reader: Reader, compiled: CompiledModel) -> None:
    number = longest(reader)
    reader.at_task(number).click().perform()
    reader.settled()
    name = reader.picked()
    assert name == reader.js("return gecReport.taskName(arguments[0])", number)
    assert reader.text("side-title") == name
    task = next(t for t in compiled.schedule.tasks if t.name == name)
    details = reader.text("details")
    assert task.op_type in details
    for tensor in (*task.reads[:10], *task.writes):
        assert tensor in details
        assert str(compiled.graph.types[tensor]) in details
    assert "Held until" in details
    assert name in reader.text("announce")


def test_a_click_beside_the_bars_lets_go(reader: Reader) -> None:
    number = longest(reader)
    reader.at_task(number).click().perform()
    assert reader.picked() is not None
    reader.at("lanes", 300, 3).click().perform()
    assert reader.picked() is None
    assert reader.text("side-title") == "In view"


def test_hovering_names_the_op(reader: Reader) -> None:
    number = longest(reader)
    reader.at_task(number).perform()
    reader.settled()
    assert reader.find("tip").is_displayed()
    name = reader.js("return gecReport.taskName(arguments[0])", number)
    assert reader.text("tip").startswith(name)
    reader.at("curves", 600, 20).perform()
    reader.settled()
    assert "HBM" in reader.text("tip")


def test_the_wheel_zooms_about_the_pointer(reader: Reader) -> None:
    before = reader.view()
    reader.wheel("lanes", 500, 30, -240)
    a, b = reader.view()
    assert b - a < 0.8 * (before[1] - before[0])
    wide = reader.find("stage").size["width"]
    left = reader.js("return gecReport.gutter")
    part = (500 - left) / (wide - left)
    fixed = before[0] + part * (before[1] - before[0])
    assert a + part * (b - a) == pytest.approx(fixed, abs=0.02 * (before[1] - before[0]))
    reader.wheel("lanes", 500, 30, 2000)
    reader.wheel("lanes", 500, 30, 2000)
    assert reader.view() == before


def test_dragging_pans_and_with_shift_picks_a_range(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    reader.keys("w", "w", "w")
    a, b = reader.view()
    reader.at("lanes", 600, 8).click_and_hold().move_by_offset(-150, 0).release().perform()
    reader.settled()
    assert reader.view()[0] > a
    assert reader.view()[1] - reader.view()[0] == pytest.approx(b - a)
    assert reader.picked() is None
    a, b = reader.view()
    chain = reader.at("lanes", 400, 8).key_down(Keys.SHIFT).click_and_hold()
    chain.move_by_offset(200, 0).release().key_up(Keys.SHIFT).perform()
    reader.settled()
    wide = reader.find("stage").size["width"] - reader.js("return gecReport.gutter")
    assert reader.view()[1] - reader.view()[0] == pytest.approx((b - a) * 200 / wide, rel=0.03)


def test_the_overview_moves_the_view(reader: Reader) -> None:
    reader.keys("w", "w", "w", "w")
    reader.at("overview", 900, 15).click().perform()
    reader.settled()
    end = reader.js("return gecReport.makespan")
    a, b = reader.view()
    assert (a + b) / 2 > 0.8 * end


def test_buttons_zoom_and_fit(reader: Reader) -> None:
    whole = reader.view()
    reader.find("zoom-in").click()
    reader.settled()
    closer = reader.view()
    assert closer[1] - closer[0] == pytest.approx((whole[1] - whole[0]) / 1.5)
    reader.find("zoom-out").click()
    assert reader.view() == pytest.approx(whole)
    reader.find("zoom-in").click()
    reader.find("zoom-fit").click()
    assert reader.view() == pytest.approx(whole)


def test_keys_move_zoom_and_walk(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    whole = reader.view()
    reader.keys("w", "w")
    a, b = reader.view()
    assert b - a == pytest.approx((whole[1] - whole[0]) / 2.25)
    reader.keys("d")
    assert reader.view()[0] > a
    reader.keys(Keys.ARROW_LEFT)
    assert reader.view()[0] == pytest.approx(a)
    reader.keys("s")
    assert reader.view()[1] - reader.view()[0] == pytest.approx(1.5 * (b - a))
    reader.keys("0")
    assert reader.view() == whole
    reader.keys(".")
    first = reader.picked()
    assert first is not None
    reader.keys(".")
    assert reader.picked() != first
    reader.keys(",")
    assert reader.picked() == first
    reader.keys("]")
    after = reader.picked()
    assert after not in (None, first)
    reader.keys("[")
    assert reader.picked() == first
    reader.keys("f")
    a, b = reader.view()
    assert b - a < whole[1] - whole[0]
    reader.keys(Keys.ESCAPE)
    assert reader.picked() is None


def test_keys_switch_marks_and_show_help(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    assert reader.find("critical").get_attribute("aria-pressed") == "true"
    reader.keys("c", "x")
    assert reader.find("critical").get_attribute("aria-pressed") == "false"
    assert reader.find("arrows").get_attribute("aria-pressed") == "false"
    reader.keys("?")
    assert reader.find("help").is_displayed()
    reader.find("help").send_keys(Keys.ESCAPE)
    reader.settled()
    assert not reader.find("help").is_displayed()
    reader.keys("/")
    assert reader.js("return document.activeElement.id") == "find"


def test_search_finds_in_table_and_timeline(reader: Reader, compiled: CompiledModel) -> None:
    from selenium.webdriver.common.keys import Keys

    wanted = [t.name for t in compiled.schedule.tasks if "matmul" in (t.name + t.op_type).lower()]
    reader.find("find").send_keys("matmul")
    reader.settled()
    total = len(compiled.schedule.tasks)
    assert reader.text("found") == f"{len(wanted)} of {total}"
    assert reader.text("table-count") == f"{len(wanted)} rows"
    assert set(reader.rows()) <= set(wanted)
    seen = []
    for _ in wanted:
        reader.find("find").send_keys(Keys.ENTER)
        seen.append(reader.picked())
    assert sorted(str(s) for s in seen) == sorted(wanted)
    reader.find("table-find").clear()
    reader.find("table-find").send_keys("no such op")
    reader.settled()
    assert reader.rows() == []
    reader.find("table-find").send_keys(Keys.ESCAPE)
    reader.settled()
    assert reader.text("table-count") == f"{total} rows"


def test_the_table_sorts_both_ways(reader: Reader, compiled: CompiledModel) -> None:
    spans = {s.name: s.duration_ns for s in compiled.compilation.result.timeline.spans}
    heads = "#grid-head [data-key='duration']"
    for way in (-1, 1):
        reader.driver.find_element("css selector", heads).click()
        reader.settled()
        shown = [way * spans[name] for name in reader.rows()]
        assert len(shown) > 10
        assert shown == sorted(shown)
    sorted_by = reader.driver.find_element("css selector", "#grid-head [aria-sort]")
    assert sorted_by.get_attribute("aria-sort") == "ascending"
    assert "Duration" in sorted_by.text


def test_a_row_picks_its_op_and_keys_walk_the_rows(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    names = reader.rows()
    reader.driver.find_element("css selector", "#grid-rows .row:nth-child(3)").click()
    reader.settled()
    assert reader.picked() == names[2]
    reader.find("grid").send_keys(Keys.ARROW_DOWN)
    reader.settled()
    assert reader.picked() == names[3]
    chosen = reader.driver.find_element("css selector", ".row[aria-selected='true']")
    assert chosen.get_property("textContent").startswith(names[3][:20])
    reader.find("grid").send_keys(Keys.END)
    reader.settled()
    assert reader.picked() == reader.rows()[-1]


def test_types_are_summed(reader: Reader, compiled: CompiledModel) -> None:
    times: dict[str, int] = {}
    for span in compiled.compilation.result.timeline.spans:
        times[span.op_type] = times.get(span.op_type, 0) + span.duration_ns
    reader.find("by-type").click()
    reader.settled()
    ranked = sorted(times, key=lambda t: -times[t])
    assert reader.rows()[0] == ranked[0]
    assert sorted(reader.rows()) == sorted(ranked)
    reader.driver.find_element("css selector", "#grid-rows .row").click()
    reader.settled()
    assert set(reader.rows(2)) == {ranked[0]}


def test_the_comparison_draws_both_runs(reader: Reader, compiled: CompiledModel) -> None:
    body = reader.text("comparison-body")
    schedule = compiled.as_dict()["schedule"]
    assert f"{schedule['single_stream_us']:.2f}"[:4] in body
    for row in schedule["candidates"]:
        assert row["strategy"] in body
    assert inked(reader, "strips") > 100


def inked(reader: Reader, canvas: str) -> int:
    """Pixels of a canvas that are drawn."""
    found: int = reader.js(
        "const c = document.getElementById(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n",
        canvas,
    )
    return found


def test_another_language(reader: Reader) -> None:
    reader.find("lang").click()
    reader.settled()
    assert reader.text("timeline-title") == "时间线"
    assert reader.js("return document.documentElement.lang") == "zh-CN"
    assert "瓶颈在哪" in reader.text("answers")
    reader.keys(".")
    assert "耗时" in reader.text("details")
    reader.find("lang").click()
    assert reader.text("timeline-title") == "Timeline"


def test_a_page_written_in_chinese(
    browser: Reader, compiled: CompiledModel, tmp_path: Path
) -> None:
    compiled.save_html(tmp_path / "zh.html", "zh")
    browser.open(tmp_path / "zh.html")
    assert browser.text("ops-title") == "算子"
    assert browser.console() == []


def test_themes_follow_the_system_and_the_button(reader: Reader) -> None:
    light = reader.js("return getComputedStyle(document.body).backgroundColor")
    reader.prefer("dark")
    reader.settled()
    dark = reader.js("return getComputedStyle(document.body).backgroundColor")
    assert dark != light
    reader.find("theme").click()
    reader.settled()
    assert reader.js("return getComputedStyle(document.body).backgroundColor") == light
    reader.prefer("light")


def test_colours_by_type_and_part(reader: Reader, compiled: CompiledModel) -> None:
    from selenium.webdriver.support.select import Select

    Select(reader.find("colour")).select_by_value("type")
    reader.settled()
    assert "MatMul" in reader.text("legend")
    Select(reader.find("colour")).select_by_value("group")
    reader.settled()
    groups = {t.group for t in compiled.schedule.tasks if t.group}
    assert any(group in reader.text("legend") for group in groups)


def test_a_narrow_window_keeps_everything(reader: Reader) -> None:
    reader.resize(420, 800)
    try:
        reader.settled()
        assert reader.js("return document.documentElement.scrollWidth <= innerWidth")
        assert inked(reader, "lanes") > 100
    finally:
        reader.resize(1280, 800)


def test_cards_have_lanes_and_curves_of_their_own(browser: Reader, cards_page: Path) -> None:
    from selenium.webdriver.support.select import Select

    browser.open(cards_page)
    assert browser.find("card").is_displayed()
    assert [o.text for o in Select(browser.find("card")).options] == ["0", "1"]
    browser.keys("g")  # the cards run alike
    last = browser.js("return gecReport.tasks") - 1
    browser.at_task(last).click().perform()
    browser.settled()
    details = browser.text("details")
    assert "Card 1" in details
    assert "hccs:1-0" in details  # its share of the link
    height = browser.find("curves").size["height"]
    assert height > 6 * 40  # four resources, two links used alike, memory
    assert Select(browser.find("card")).first_selected_option.text == "1"
    assert browser.console() == []


def test_a_timeline_alone_is_shown(browser: Reader, tmp_path: Path) -> None:
    for name, subject in (
        ("bare", Subject(layered_subject(12, 2).timeline)),
        ("empty", Subject(Timeline((), model="nothing"))),
    ):
        path = tmp_path / f"{name}.html"
        path.write_text(render_page(page_data(subject)), encoding="utf-8")
        browser.open(path)
        browser.keys("w", ".", "f", "]", "0")
        assert not browser.find("comparison").is_displayed()
        assert browser.console() == []


def test_names_from_a_model_do_nothing(browser: Reader, tmp_path: Path) -> None:
    subject = layered_subject(12, 2, name=lambda n: f"{HOSTILE}{n}")
    path = tmp_path / "hostile.html"
    path.write_text(render_page({**page_data(subject), "title": HOSTILE}), encoding="utf-8")
    browser.open(path)
    browser.keys(".", "]")
    browser.at_task(3).perform()
    browser.settled()
    assert browser.text("tip").startswith(HOSTILE)
    assert browser.js("return document.images.length") == 0
    assert browser.js("return document.title").startswith(HOSTILE)
    assert browser.rows()[0].startswith(HOSTILE)
    assert browser.console() == []


def test_the_policy_stops_scripts_that_are_not_the_pages_own(
    browser: Reader, model_page: Path
) -> None:
    browser.open(model_page)
    browser.js(
        "const s = document.createElement('script'); s.textContent = 'window.broken = 1';"
        "document.body.append(s);"
    )
    assert browser.js("return window.broken ?? 0") == 0
    if browser.engine is CHROMIUM:  # the others' drivers do not tell of it
        assert any("Content Security Policy" in row["message"] for row in browser.console())


@pytest.mark.slow
def test_twenty_thousand_tasks_are_fluid(browser: Reader, large_page: Path) -> None:
    """In time by the clock: for a machine that does nothing else."""
    paints = []
    for _ in range(3):
        browser.open(large_page)
        browser.settled()
        paints.append(
            max(
                browser.js("return performance.getEntriesByName('gec-ready')[0].startTime"),
                browser.js(
                    "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
                ),
            )
        )
    assert min(paints) < 2000
    steps = browser.driver.execute_async_script(ZOOM_STEPS, 30)
    assert sorted(steps)[len(steps) * 9 // 10] < 100


def test_twenty_thousand_tasks_are_shown(browser: Reader, large_page: Path) -> None:
    browser.open(large_page)
    assert browser.js("return gecReport.tasks") == 20_000
    browser.driver.execute_async_script(ZOOM_STEPS, 30)
    a, b = browser.view()
    assert b - a < 0.05 * browser.js("return gecReport.makespan")
    browser.keys("0", ".", ".", "f")
    assert browser.picked() is not None
    browser.find("find").send_keys("layers.4999")
    browser.settled()
    assert browser.text("found") == "4 of 20,000"
    browser.js("document.getElementById('grid-body').scrollTop = 1e9")
    browser.find("table-find").clear()
    browser.find("table-find").send_keys("gelu")
    browser.settled()
    assert browser.text("table-count") == "5,000 rows"
    assert len(browser.rows()) < 60
    assert browser.console() == []


ZOOM_STEPS = """
const [count, done] = arguments, stage = document.getElementById("lanes"), took = [];
const box = stage.getBoundingClientRect();
const step = () => {
  if (took.length === count) return done(took);
  const begun = performance.now();
  stage.dispatchEvent(new WheelEvent("wheel", {
    deltaY: -60, clientX: box.left + 500, clientY: box.top + 40, bubbles: true, cancelable: true,
  }));
  requestAnimationFrame(() => setTimeout(() => {
    took.push(performance.now() - begun);
    step();
  }));
};
step();
"""
"""The time of each zoom step, from the wheel's event until its frame is drawn."""


def test_rules_that_a_schedule_breaks_stand_first(
    browser: Reader, compiled: CompiledModel, tmp_path: Path
) -> None:
    subject = compilation_subject(compiled.compilation)
    assert subject.report is not None
    finding = {"code": "race", "message": "two tasks fight", "fix": "add_sync_point(...)"}
    report = {
        **subject.report,
        "verification": {
            **subject.report["verification"],
            "race_free": False,
            "findings": [finding],
        },
        "warnings": [{"code": "slow", "message": "it is slow", "hint": "be quick"}],
        "durations": {"measured_share_of_time": 0.5, "file": "op_summary.csv"},
        "streams": {**subject.report["streams"], "micro_batches": [2, 2]},
    }
    path = tmp_path / "broken.html"
    path.write_text(render_page(page_data(replace(subject, report=report))), encoding="utf-8")
    browser.open(path)
    warnings = browser.text("warnings-body")
    assert warnings.index("two tasks fight") < warnings.index("it is slow")
    for text in ("add_sync_point(...)", "be quick", "NOT race-free, deadlock-free"):
        assert text in warnings
    assert "breaks a rule" in browser.text("change")
    assert "50% of the time goes by durations measured in op_summary.csv" in browser.text("foot")
    assert "The batch of 4 runs in 2 parts" in browser.text("comparison-body")
    assert browser.console() == []


def test_a_bound_of_chains_names_what_lies_between_them(
    browser: Reader, compiled: CompiledModel, tmp_path: Path
) -> None:
    data = page_data(compilation_subject(compiled.compilation))
    data["report"]["schedule"] |= {"binding_resource": "cube", "bounds": {"cube": 1, "segments": 2}}
    path = tmp_path / "chains.html"
    path.write_text(render_page(data), encoding="utf-8")
    browser.open(path)
    assert "chains of dependencies, cube between them" in browser.text("binds")
    assert browser.console() == []


def test_a_thousand_lanes_are_drawn_on_a_sharp_screen(browser: Reader, tmp_path: Path) -> None:
    path = tmp_path / "lanes.html"
    path.write_text(render_page(page_data(layered_subject(8, 4, 250))), encoding="utf-8")
    browser.resize(1280, 800, 2)
    browser.open(path)
    browser.settled()
    drawn = browser.js(
        "const c = document.getElementById('lanes');"
        "return c.getContext('2d').getImageData(0, c.height - 40, c.width, 40).data.some(x => x)"
    )
    browser.resize(1280, 800)
    assert drawn
    assert browser.console() == []
