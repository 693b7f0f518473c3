"""Screens of several pixels to a px: coarse while a slow one moves, sharp when it rests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_help import Reader

SLOW_ZOOM = """
const [frame, done] = arguments, stage = document.getElementById("lanes"), seen = [];
const width = () => stage.width / stage.clientWidth;
const box = stage.getBoundingClientRect();
const step = (left) => {
  if (!left) return done(seen);
  stage.dispatchEvent(new WheelEvent("wheel", {
    deltaY: -20, clientX: box.left + 500, clientY: box.top + 40, bubbles: true, cancelable: true,
  }));
  requestAnimationFrame(() => {
    const until = performance.now() + frame;
    while (performance.now() < until);
    seen.push([gecReport.coarse(), width()]);
    step(left - 1);
  });
};
step(20);
"""
"""Zooms in frames that take so many ms; for each whether it was coarse, and pixels to a px."""


@pytest.fixture
def sharp(browser: Reader, model_page: Path) -> Iterator[Reader]:
    browser.resize(1280, 800, 2)
    browser.open(model_page)
    browser.settled()
    yield browser
    browser.resize(1280, 800)
    assert browser.console() == []


RATIO = "const c = document.getElementById(arguments[0]); return c.width / c.clientWidth"


def test_a_slow_screen_moves_coarsely_and_rests_sharply(sharp: Reader) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert sharp.js(RATIO, "lanes") == 2
    seen = sharp.driver.execute_async_script(SLOW_ZOOM, 60)
    assert seen[0] == [False, 2]
    assert [True, 1] in seen
    WebDriverWait(sharp.driver, 60).until(lambda _: not sharp.js("return gecReport.coarse()"))
    for canvas in ("overview", "lanes", "curves"):
        assert sharp.js(RATIO, canvas) == 2
