"""Fixtures that all tests share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from gecompiler.lang import set_language

sys.path.append(str(Path(__file__).parent))  # growth
os.environ["GEC_LANG"] = "en"  # what tests read, whatever the locale

# A change is judged by the same examples on every machine, however slow it is; `make search`
# draws others.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")


def _corpus_path() -> Path | None:
    named = os.environ.get("GECOMPILER_CORPUS")
    beside = Path(__file__).resolve().parents[2] / "shared"
    for path in [Path(named)] if named else [beside]:
        if (path / "models" / "manifest.yaml").is_file():
            return path
    return None


CORPUS = _corpus_path()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command run within the process (``-q``) leaves the package's log as it found it."""
    logger = logging.getLogger("gecompiler")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(autouse=True)
def _language_as_before() -> Iterator[None]:
    """A command run within the process (``--lang``) leaves the language as it found it."""
    yield
    set_language(None)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real models and cases; the test is skipped where it is absent."""
    if CORPUS is None:
        pytest.skip("the corpus of real models is not here")
    return CORPUS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives ``corpus_model`` every valid real export and case, ``invalid_model`` the others."""
    for name in ("corpus_model", "invalid_model"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, _corpus_models(valid=name == "corpus_model"))


def _corpus_models(*, valid: bool) -> list[object]:
    if CORPUS is None:
        skip = pytest.mark.skip("the corpus of real models is not here")
        return [pytest.param(None, marks=skip, id="corpus")]
    invalid = {
        name
        for name, facts in yaml.safe_load((CORPUS / "models" / "manifest.yaml").read_text()).items()
        if "invalid" in facts
    }
    files = [*CORPUS.glob("models/*.onnx"), *CORPUS.glob("cases/attention/*.onnx")]
    return [
        pytest.param(path, id=path.stem)
        for path in sorted(files)
        if (path.stem not in invalid) == valid
    ]
