"""What the README shows is what the product prints. ``python tests/test_readme.py`` rewrites it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
READMES = (README, ROOT / "README.zh.md")
in_both_languages = pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
EXAMPLE = re.compile(
    r"(<!-- example -->\n```console\n\$ )(.*?)\n(.*?)(```\n<!-- end of example -->)", re.S
)


def _printed(command: str) -> str:
    assert command.startswith("gec ")
    return subprocess.run(
        [sys.executable, "-m", "gecompiler", *command.split()[1:]],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={"PATH": "", "COLUMNS": "100", "PYTHONUTF8": "1"},
        cwd=ROOT,
    ).stdout


@in_both_languages
def test_the_example_shows_its_real_output(readme: Path) -> None:
    found = EXAMPLE.search(readme.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group(3) == _printed(found.group(2))


def test_both_readmes_name_the_same_commands() -> None:
    blocks = [re.findall(r"```sh\n(.*?)```", p.read_text(encoding="utf-8"), re.S) for p in READMES]
    assert blocks[0] == blocks[1]


def test_both_commands_are_marked_once() -> None:
    text = README.read_text(encoding="utf-8")
    for mark in ("main command", "test command"):
        assert len(re.findall(rf"<!-- {mark} -->\n```sh\n[^\n]+\n```", text)) == 1


@in_both_languages
def test_every_link_leads_somewhere(readme: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


if __name__ == "__main__":
    for readme in READMES:
        text = readme.read_text(encoding="utf-8")
        new = EXAMPLE.sub(lambda m: f"{m[1]}{m[2]}\n{_printed(m[2])}{m[4]}", text)
        readme.write_text(new, encoding="utf-8")
