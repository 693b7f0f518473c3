"""What the README shows is what the product prints. ``python tests/test_readme.py`` rewrites it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLE = re.compile(
    r"(<!-- example -->\n```console\n\$ )(.*?)\n(.*?)(```\n<!-- end of example -->)", re.S
)


def _printed(command: str) -> str:
    assert command.startswith("gec ")
    return subprocess.run(
        [sys.executable, "-m", "gecompiler", *command.split()[1:]],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "", "COLUMNS": "100"},
        cwd=README.parent,
    ).stdout


def test_the_example_shows_its_real_output() -> None:
    found = EXAMPLE.search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group(3) == _printed(found.group(2))


def test_both_commands_are_marked_once() -> None:
    text = README.read_text(encoding="utf-8")
    for mark in ("main command", "test command"):
        assert len(re.findall(rf"<!-- {mark} -->\n```sh\n[^\n]+\n```", text)) == 1


def test_every_link_leads_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    new = EXAMPLE.sub(lambda m: f"{m[1]}{m[2]}\n{_printed(m[2])}{m[4]}", text)
    README.write_text(new, encoding="utf-8")
