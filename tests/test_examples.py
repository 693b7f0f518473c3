"""Every example runs, warns of nothing unforeseen, and prints something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROGRAMS = sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_example_runs(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_list_of_examples_is_complete() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [p for p in PROGRAMS if f"`{p}`" not in listed] == []
