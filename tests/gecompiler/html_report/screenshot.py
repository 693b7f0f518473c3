"""Takes the README's picture of the HTML report.

Usage: python screenshot.py OUT.png [MODEL [BATCH [SEQ]]]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser_help import Reader, start
from engines import CHROMIUM

import gecompiler as ge

WIDTH, HEIGHT = 1280, 800


def main(out: str, model: str = "bert-base", batch: str = "1", seq: str = "128") -> None:
    """Compiles, opens the report, looks closer at a fused attention, and takes the picture."""
    if CHROMIUM.tools() is None:
        sys.exit("needs chromium, chromedriver and selenium")
    compiled = ge.compile(model, batch=int(batch), seq=int(seq))
    reader = start(CHROMIUM, WIDTH, HEIGHT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            compiled.save_html(page)
            reader.prefer("light")
            reader.open(page)
            look_closer(reader)
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            reader.driver.save_screenshot(out)
    finally:
        reader.driver.quit()


def look_closer(reader: Reader) -> None:
    """A few layers, with an attention picked."""
    reader.find("find").send_keys("FlashAttention")
    for _ in range(7):
        reader.find("find").send_keys("\n")
    reader.find("find").send_keys("\ue00c")  # Escape
    reader.keys("f", "s")
    reader.js("document.activeElement.blur(); window.scrollTo(0, 0)")
    reader.settled()


if __name__ == "__main__":
    main(*sys.argv[1:])
