"""Pages and the browser that reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from browser_help import Reader, start
from engines import CHROMIUM, Engine, wanted
from schedule_help import layered_subject

from gecompiler.compiled import CompiledModel
from gecompiler.html_report import page_data, render_page
from gecompiler.request import Request


@pytest.fixture(scope="package")
def compiled(tiny_path: Path) -> CompiledModel:
    """A small model, compiled for streams of its own."""
    return CompiledModel.compile(Request(tiny_path, batch=2, seq=16))


@pytest.fixture(scope="package")
def model_page(compiled: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "model.html"
    compiled.save_html(path)
    return path


@pytest.fixture(scope="package")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 tasks on four streams."""
    path = tmp_path_factory.mktemp("pages") / "large.html"
    path.write_text(render_page(page_data(layered_subject(20_000))), encoding="utf-8")
    return path


@pytest.fixture(scope="package")
def cards_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cards of two streams."""
    path = tmp_path_factory.mktemp("pages") / "cards.html"
    path.write_text(render_page(page_data(layered_subject(40, 2, 2))), encoding="utf-8")
    return path


@pytest.fixture(scope="package", params=wanted(), ids=lambda engine: engine.name)
def browser(request: pytest.FixtureRequest) -> Iterator[Reader]:
    """A reader with each browser that is taken."""
    engine: Engine = request.param
    if engine.tools() is None:
        pytest.skip(f"needs {engine.name}, its driver and selenium")
    reader = start(engine)
    if engine is CHROMIUM:
        reader.prefer("light")
    yield reader
    reader.driver.quit()
