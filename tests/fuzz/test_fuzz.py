"""Hostile models and texts: a clear error or a right result, and nothing touched.

``make fuzz`` runs thousands; here are some of them, all that once failed, and the extremes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from fuzz import extreme_makers, model_makers, text_makers
from fuzz_campaign import Make, run_cases
from fuzz_case import kept_case
from fuzz_extremes import QUICK

from gecompiler.backends.execution import loop_limit

KEPT = sorted(path.parent for path in (Path(__file__).parent / "corpus").glob("*/argv.json"))


@pytest.fixture(autouse=True)
def _shorter_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless loops are ended sooner than for users, to save time."""
    monkeypatch.setattr(loop_limit, "SECONDS", 1.0)


def check(makers: Iterable[Make], folder: Path) -> int:
    """Runs the cases; fails with what went wrong in any."""
    tally = run_cases(makers, folder.resolve() / "fuzz")
    told = [f"{f['case']} {f['argv']}: {fault}" for f in tally.failures for fault in f["faults"]]
    assert not told, "\n".join(told[:10])
    return tally.count


def test_what_once_failed_fails_no_more(tmp_path: Path) -> None:
    assert KEPT
    assert check([partial(kept_case, path) for path in KEPT], tmp_path) == len(KEPT)


def test_damaged_models(tmp_path: Path) -> None:
    assert check(model_makers(200, 10**6, None), tmp_path) == 200


def test_damaged_real_models(tmp_path: Path, corpus: Path) -> None:
    assert check(islice(model_makers(400, 10**6, corpus), 0, 40), tmp_path) == 40


def test_hostile_texts(tmp_path: Path) -> None:
    assert check(text_makers(100, 10**6), tmp_path) == 100


def test_extremes(tmp_path: Path) -> None:
    assert check(extreme_makers(QUICK), tmp_path) >= len(QUICK)


@pytest.mark.slow
def test_all_extremes(tmp_path: Path) -> None:
    assert check(extreme_makers(), tmp_path) > len(QUICK)
