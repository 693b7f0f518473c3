"""A reader in front of a page, in the browser of any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engines import CHROMIUM, Engine


def start(engine: Engine = CHROMIUM, width: int = 1280, height: int = 800) -> Reader:
    """Someone with a browser; the caller quits its driver."""
    found = engine.tools()
    assert found is not None
    driver = engine.start(*found, width, height)
    driver.set_script_timeout(120)
    reader = Reader(driver, engine)
    reader.resize(width, height)
    return reader


class Reader:
    """Someone in front of the page."""

    def __init__(self, driver: Any, engine: Engine = CHROMIUM) -> None:
        self.driver = driver
        self.engine = engine
        self._said: list[dict[str, Any]] = []
        if engine.name == "firefox":
            driver.script.add_console_message_handler(self._hear)
            driver.script.add_javascript_error_handler(self._hear)

    def _hear(self, entry: Any) -> None:
        self._said.append({"message": entry.text})

    def resize(self, width: int, height: int, ratio: float = 1) -> None:
        """The size of the page's part of the window, in CSS px of ``ratio`` pixels each."""
        if self.engine is CHROMIUM:
            size = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            return
        if ratio != 1:
            pytest.skip(f"{self.engine.name} cannot be given a sharper screen")
        self.driver.set_window_size(width, height)
        frame = self.js("return [outerWidth - innerWidth, outerHeight - innerHeight]")
        self.driver.set_window_size(width + frame[0], height + frame[1])

    def prefer(self, scheme: str) -> None:
        """What the reader's system asks for: ``light`` or ``dark``, and scrolling at once."""
        if self.engine is not CHROMIUM:
            pytest.skip(f"{self.engine.name} cannot be told another wish while it runs")
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, path: Path) -> None:
        self.console()
        self.driver.get(path.as_uri())
        assert self.js("return typeof gecReport") == "object", self.console()
        self.js("document.documentElement.style.scrollBehavior = 'auto'")  # nothing to wait for

    def console(self) -> list[dict[str, Any]]:
        """What the page complained of since last asked; WebKit's driver does not tell."""
        if self.engine is CHROMIUM:
            found: list[dict[str, Any]] = self.driver.get_log("browser")
            return found
        said, self._said = self._said, []
        return said

    def js(self, code: str, *values: object) -> Any:
        return self.driver.execute_script(code, *values)

    def settled(self) -> None:
        """After what was asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def find(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def text(self, name: str) -> str:
        found: str = self.js("return document.getElementById(arguments[0]).textContent", name)
        return found

    def view(self) -> tuple[float, float]:
        a, b = self.js("return gecReport.view()")
        return a, b

    def picked(self) -> str | None:
        found: str | None = self.js(
            "const i = gecReport.picked(); return i < 0 ? null : gecReport.taskName(i)"
        )
        return found

    def at(self, canvas: str, x: float, y: float) -> Any:
        """An action chain with the pointer at a point of a canvas."""
        from selenium.webdriver.common.action_chains import ActionChains

        node = self.find(canvas)
        self.js("arguments[0].scrollIntoView({block: 'center'})", node)
        self.settled()
        size = node.size
        return ActionChains(self.driver, duration=20).move_to_element_with_offset(
            node, round(x - size["width"] / 2), round(y - size["height"] / 2)
        )

    def at_task(self, number: int) -> Any:
        x, y = self.js("return gecReport.pointOf(arguments[0])", number)
        return self.at("lanes", x, y)

    def wheel(self, canvas: str, x: float, y: float, amount: int) -> None:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

        self.at(canvas, x, y).perform()
        node = self.find(canvas)
        off = round(x - node.size["width"] / 2), round(y - node.size["height"] / 2)
        origin = ScrollOrigin.from_element(node, *off)
        ActionChains(self.driver).scroll_from_origin(origin, 0, amount).perform()
        self.settled()

    def keys(self, *keys: str) -> None:
        """Presses keys on the timeline."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.js("document.getElementById('stage').focus()")
        ActionChains(self.driver).send_keys(*keys).perform()
        self.settled()

    def rows(self, column: int = 1) -> list[str]:
        """What a column of the table shows, from the top."""
        found: list[str] = self.js(
            "return [...document.querySelectorAll('#grid-rows .row')]"
            ".sort((a, b) => a.offsetTop - b.offsetTop)"
            ".map(row => row.children[arguments[0] - 1].textContent)",
            column,
        )
        return found
