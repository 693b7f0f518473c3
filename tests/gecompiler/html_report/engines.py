"""Browsers by their engines: which of them are here, and how each is started and asked.

``GEC_BROWSERS`` names those that the tests take, apart by blanks. Without it they take Chromium
and, where Firefox and geckodriver are installed, Firefox. WebKit, which is Safari's engine, is
taken only when named: it needs WebKitWebDriver, WebKitGTK's MiniBrowser and an X display.
"""

from __future__ import annotations

import glob
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Engine:
    """An engine, how to find its browser and driver, and how to start them."""

    name: str
    browsers: tuple[str, ...]
    driver: str
    start: Callable[[str, str, int, int], Any]

    def tools(self) -> tuple[str, str] | None:
        """Paths of the browser and its driver; None where one of them or selenium is missing."""
        try:
            import selenium  # noqa: F401
        except ImportError:
            return None
        paths = (path for name in self.browsers if (path := _found(name)))
        browser, driver = next(paths, None), shutil.which(self.driver)
        return (browser, driver) if browser and driver else None


def _found(name: str) -> str | None:
    return next(iter(sorted(glob.glob(name))), None) if "*" in name else shutil.which(name)


def _chromium(browser: str, driver: str, width: int, height: int) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    for flag in (*flags, "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def _firefox(browser: str, driver: str, width: int, height: int) -> Any:
    from selenium import webdriver
    from selenium.webdriver.firefox.options import Options
    from selenium.webdriver.firefox.service import Service

    options = Options()
    options.binary_location = browser
    options.enable_bidi = True
    for flag in ("-headless", f"--width={width}", f"--height={height}"):
        options.add_argument(flag)
    options.set_preference("ui.prefersReducedMotion", 1)
    options.set_preference("layout.css.prefers-color-scheme.content-override", 1)  # light
    return webdriver.Firefox(options=options, service=Service(driver))


def _webkit(browser: str, driver: str, width: int, height: int) -> Any:
    from selenium import webdriver
    from selenium.webdriver.webkitgtk.service import Service

    options = webdriver.WebKitGTKOptions()
    options.binary_location = browser
    options.add_argument("--automation")
    with warnings.catch_warnings():  # selenium's own: it still calls what it deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        return webdriver.WebKitGTK(options=options, service=Service(driver))


CHROMIUM = Engine(
    "chromium",
    ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "chromedriver",
    _chromium,
)
FIREFOX = Engine("firefox", ("firefox", "firefox-esr"), "geckodriver", _firefox)
WEBKIT = Engine("webkit", ("/usr/lib/*/webkit2gtk-4*/MiniBrowser",), "WebKitWebDriver", _webkit)
ENGINES = {engine.name: engine for engine in (CHROMIUM, FIREFOX, WEBKIT)}


def wanted() -> tuple[Engine, ...]:
    """The engines the tests take; Chromium also where it is missing, so that its tests say so."""
    named = os.environ.get("GEC_BROWSERS", "").split()
    if named:
        return tuple(ENGINES[name] for name in named)
    return (CHROMIUM, FIREFOX) if FIREFOX.tools() else (CHROMIUM,)
