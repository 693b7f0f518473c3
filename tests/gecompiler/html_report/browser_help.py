"""Headless Chromium on a page: what a reader does, and what the page says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def tools() -> tuple[str, str] | None:
    """Paths of the browser and its driver; None where one of them or selenium is missing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return None
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def start(width: int = 1280, height: int = 800) -> Any:
    """A headless browser; the caller quits it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    found = tools()
    assert found is not None
    options = Options()
    options.binary_location = found[0]
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    for flag in (*flags, "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    resize(driver, width, height)
    return driver


def resize(driver: Any, width: int, height: int) -> None:
    """The size of the page's part of the window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(driver: Any, scheme: str) -> None:
    """What the reader's system asks for: ``light`` or ``dark``, and scrolling at once."""
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


class Reader:
    """Someone in front of the page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        assert self.js("return typeof gecReport") == "object", self.console()

    def console(self) -> list[dict[str, Any]]:
        """What the page complained of since last asked."""
        found: list[dict[str, Any]] = self.driver.get_log("browser")
        return found

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
