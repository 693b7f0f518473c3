"""The documentation tells the truth: what its pages show is what the product prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_what_is_printed(page: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests/docs/run_page.py"), str(DOCS / page)],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_lies_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n3\n```\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests/docs/run_page.py")]
    done = subprocess.run([*command, str(page)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "+2" in done.stdout
    subprocess.run([*command, "--rewrite", str(page)], check=True)
    assert "```text\n2\n```" in page.read_text(encoding="utf-8")


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    pages = ("index", "tutorial", "zh/tutorial", "security", "conformance", "howto/training")
    for page in (*pages, "reference/cli", "reference/options"):
        assert (tmp_path / f"{page}.html").is_file()


@pytest.mark.parametrize("page", PAGES)
def test_no_page_shows_a_bug(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert "internal error" not in text
    assert "Traceback" not in text
