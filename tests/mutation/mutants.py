"""Mutants as they lie in the tree: what each changes, and what became of it."""

from __future__ import annotations

import ast
import difflib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SURVIVED = (0, 33)
"""mutmut's exit codes: all tests passed; no test runs the function."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function."""

    name: str
    exit_code: int | None
    """None: not run."""
    file: File

    @property
    def function(self) -> str:
        """``module.function`` or ``module.Class.method``, without mutmut's marks."""
        plain = re.sub(r"__mutmut_\d+$", "", self.name).removeprefix("gecompiler.")
        module, _, name = plain.rpartition(".")
        return f"{module}.{name.removeprefix('x').removeprefix('_').strip('ǁ').replace('ǁ', '.')}"

    def trees(self) -> tuple[ast.stmt, ast.stmt]:
        """The function as it was and as it is."""
        short = self.name.rpartition(".")[2]
        return self.file.tree(re.sub(r"_\d+$", "_orig", short)), self.file.tree(short)

    @property
    def lines(self) -> tuple[str, str]:
        """What it takes out and puts in, as normalised source."""
        sources = (re.sub(r"\w*__mutmut_\w+", "f", ast.unparse(f)) for f in self.trees())
        before, after = (source.splitlines() for source in sources)
        found = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
        taken = [x[1:].strip() for x in found if x.startswith("-")]
        put = [x[1:].strip() for x in found if x.startswith("+")]
        return " ".join(taken), " ".join(put)

    @property
    def survived(self) -> bool:
        """Whether no test noticed."""
        return self.exit_code in SURVIVED


class File:
    """A file that mutmut wrote: every function many times over."""

    def __init__(self, path: Path) -> None:
        self._lines = path.read_text(encoding="utf-8").splitlines()
        starts = (re.match(r"( *)(?:async )?def (\w+)\(", line) for line in self._lines)
        self._start = {m[2]: (i, len(m[1])) for i, m in enumerate(starts) if m}

    def tree(self, name: str) -> ast.stmt:
        """One function of it."""
        start, indent = self._start[name]
        stop = start + 1
        while stop < len(self._lines) and not self._ends(stop, indent):
            stop += 1
        return ast.parse(textwrap.dedent("\n".join(self._lines[start:stop]))).body[0]

    def _ends(self, at: int, indent: int) -> bool:
        line = self._lines[at]
        bare = line.lstrip()
        return bool(bare) and len(line) - len(bare) <= indent and not bare.startswith(")")


def mutants_of(folder: Path) -> Iterator[Mutant]:
    """All mutants of a tree, by file and number."""
    for meta in sorted((folder / "mutants").rglob("*.py.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        file = File(meta.with_suffix("")) if codes else None
        for name, code in codes.items():
            if file is not None:
                yield Mutant(name, code, file)


def no_behaviour(mutant: Mutant) -> str:
    """Why the change is none that a test should notice; empty when it is one.

    ``text``: the wording of a message (literals with spaces, and what is within an f-string):
    tests check that names and figures are told, and translations are tested for themselves.
    ``strict``: ``zip(..., strict=...)``, an assertion about arguments that always holds.
    ``log``: internal logging.
    """
    found = _difference(*(ast.Module([f], []) for f in mutant.trees()), [])
    if found is None:
        return ""
    trail, before, after = found
    if isinstance(before, str) and isinstance(after, str):
        in_text = any(isinstance(node, ast.JoinedStr) for node in trail)
        return "text" if in_text or " " in before else ""
    calls = [node for node in trail if isinstance(node, ast.Call)]
    if any(ast.unparse(c.func).startswith(("log.", "logger.", "_log.")) for c in calls):
        return "log"
    if not calls or ast.unparse(calls[-1].func) != "zip":
        return ""
    keyword = any(isinstance(node, ast.keyword) and node.arg == "strict" for node in trail)
    removed = after is calls[-1] and not calls[-1].keywords
    return "strict" if keyword or removed else ""


Difference = tuple[list[object], object, object]
"""The nodes above, and what was there before and after."""


def _difference(a: object, b: object, above: list[object]) -> Difference | None:
    """Where two trees differ first; a node that has more or fewer children differs itself."""
    if type(a) is not type(b):
        return above, a, b
    if isinstance(a, ast.AST):
        for name in a._fields:
            if isinstance(a, ast.FunctionDef) and name == "name":
                continue  # mutmut's
            x, y = getattr(a, name), getattr(b, name)
            if isinstance(x, list) and len(x) != len(y):
                return [*above, a, b], a, b
            found = _difference(x, y, [*above, a])
            if found is not None:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list):
        each = (_difference(x, y, above) for x, y in zip(a, b, strict=True))
        return next((found for found in each if found is not None), None)
    return (above, a, b) if a != b else None
