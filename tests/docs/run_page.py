"""Runs what a page of the documentation shows, and holds what it prints against the page.

    python tests/docs/run_page.py PAGE.md             exit 1 and the difference when it lies
    python tests/docs/run_page.py --rewrite PAGE.md   puts what is printed into the page

A page's blocks are run in order, in one folder that starts with the examples' ``tiny-llama.yaml``:

- ``python``: in one namespace per page, also where a comment hides it (``<!-- python``). A
  ``text`` block right after it is what it prints.
- ``console``: each line after ``$ `` is a command, what follows its output, to the letter. ``gec``
  alone is run, if need be through ``| head -n N`` or ``| tail -n N``.
- any block whose first line is ``# file: NAME`` is written to that file and not run.
- ``sh``: not run; installing and building only.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^(?:```|<!-- )(\w+)\n(.*?)^(?:```|-->)$", re.S | re.M)
FILE = re.compile(r"# file: (\S+)\n")
NOT_RUN = ("sh", "yaml", "toml", "text", "json")
KINDS = ("python", "console", *NOT_RUN)


@dataclass
class Block:
    """A fenced block: its language, its text, and where the text stands in the page."""

    kind: str
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """All fenced blocks that name a language, and comments that begin with ``python``."""
    return [Block(m[1], m[2], m.start(2), m.end(2)) for m in BLOCK.finditer(page)]


def run_page(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Runs the page in the folder; each block that shows output, with what it should show."""
    found = blocks(page)
    names: dict[str, Any] = {"__name__": "__page__"}
    for block, after in zip(found, [*found[1:], None][: len(found)], strict=True):
        if block.kind not in KINDS:
            raise SystemExit(f"a block of {block.kind!r}: expected one of {', '.join(KINDS)}")
        file = FILE.match(block.text)
        if file:
            (folder / file[1]).write_text(block.text[file.end() :], encoding="utf-8")
        elif block.kind == "python":
            printed = _python(block.text, names)
            if after and after.kind == "text" and not page[block.end + 4 : after.start - 8].strip():
                yield after, printed
        elif block.kind == "console":
            yield block, "".join(_console(block.text, folder))


def _python(code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "page", "exec"), names)
    return printed.getvalue()


def _console(text: str, folder: Path) -> Iterator[str]:
    for command in re.findall(r"^\$ (.*)$", text, flags=re.M):
        gec, _, cut = command.partition(" | ")
        words = shlex.split(gec)
        assert words[0] == "gec", f"{command}: only gec is run"
        done = subprocess.run(
            [sys.executable, "-m", "gecompiler", *words[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={"PATH": "", "COLUMNS": "100", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
            cwd=folder,
        )
        assert "internal error" not in done.stdout, done.stdout
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        yield "".join(f"{line}\n" for line in [f"$ {command}", *_cut(lines, cut)])


def _cut(lines: list[str], cut: str) -> list[str]:
    if not cut:
        return lines
    found = re.fullmatch(r"(head|tail) -n (\d+)", cut)
    assert found, f"{cut}: expected head -n N or tail -n N"
    count = int(found[2])
    return lines[:count] if found[1] == "head" else lines[-count:]


def main(arguments: list[str]) -> int:
    """The command; see the module's docstring."""
    rewrite = arguments[0] == "--rewrite"
    path = Path(arguments[-1]).resolve()
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "examples" / "tiny-llama.yaml", folder)
        os.chdir(folder)
        shown = list(run_page(page, folder))
        os.chdir(ROOT)
    new = page
    for block, text in reversed(shown):
        new = new[: block.start] + text + new[block.end :]
    if rewrite:
        path.write_text(new, encoding="utf-8")
    elif new != page:
        sys.stdout.writelines(
            difflib.unified_diff(
                page.splitlines(True), new.splitlines(True), "the page", "what is printed"
            )
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
