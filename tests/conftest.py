"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _corpus_path() -> Path | None:
    named = os.environ.get("GECOMPILER_CORPUS")
    beside = Path(__file__).resolve().parents[2] / "shared"
    for path in [Path(named)] if named else [beside]:
        if (path / "models" / "manifest.yaml").is_file():
            return path
    return None


CORPUS = _corpus_path()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real models and cases; the test is skipped where it is absent."""
    if CORPUS is None:
        pytest.skip("the corpus of real models is not here")
    return CORPUS
