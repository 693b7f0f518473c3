"""Which changes count as behaviour, and that the explained ones are of code that is there."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from mutants import Mutant, mutants_of, no_behaviour
from mutation import explanations
from mutation_tree import ROOT


def mutant(folder: Path, before: str, after: str) -> Mutant:
    """The change of one line of a function, as mutmut writes it."""
    file = folder / "mutants" / "package" / "module.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        f"def x_f__mutmut_{name}(\n    a, b,\n):\n    c = 1\n    {line}\n    return c\n"
        for name, line in (("orig", before), ("1", after))
    ]
    file.write_text("\n".join(parts), encoding="utf-8")
    meta = file.with_name("module.py.meta")
    meta.write_text(json.dumps({"exit_code_by_key": {"gecompiler.module.x_f__mutmut_1": 0}}))
    (found,) = mutants_of(folder)
    return found


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("a += 1", "a -= 1", ""),
        ("a += 1", "a = 1", ""),
        ("a = f(b, 'race')", "a = f(b, 'RACE')", ""),
        ("a = f(b, 'a race')", "a = f(b, None)", ""),
        ("a = f(b, 'a race')", "a = f(b, 'A RACE')", "text"),
        ("a = f'{b or \"nothing\"} is'", "a = f'{b or \"NOTHING\"} is'", "text"),
        ("a = f'{b or 1} is'", "a = f'{b and 1} is'", ""),
        ("a = zip(a, b, strict=True)", "a = zip(a, b, strict=False)", "strict"),
        ("a = zip(a, b, strict=True)", "a = zip(a, b, strict=None)", "strict"),
        ("a = zip(a, b, strict=True)", "a = zip(a, b)", "strict"),
        ("a = zip(a, b, strict=True)", "a = zip(a, strict=True)", ""),
        ("a = zip(a, b, strict=True)", "a = zip(None, b, strict=True)", ""),
        ("a = f(a, strict=True)", "a = f(a, strict=False)", ""),
        ("log.info('%s', a)", "log.info('%s', None)", "log"),
        ("logger.info('%s', a)", "logger.info(a)", "log"),
        ("catalog.info(a)", "catalog.info(None)", ""),
    ],
)
def test_what_counts(tmp_path: Path, before: str, after: str, why: str) -> None:
    found = mutant(tmp_path, before, after)
    assert no_behaviour(found) == why
    assert found.survived
    assert found.function == "module.f"
    assert found.lines == tuple(ast.unparse(ast.parse(line)) for line in (before, after))


def sources(function: str) -> str:
    """The function, class or not, that an explanation is of, as normalised source."""
    names = function.split(".")
    for count in range(len(names) - 1, 0, -1):
        path = ROOT.joinpath(*names[:count])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                module = ast.parse(file.read_text(encoding="utf-8"))
                wanted = names[-1]
                found = [
                    node
                    for node in ast.walk(module)
                    if isinstance(node, ast.FunctionDef) and node.name == wanted
                ]
                whole = " ".join(" ".join(ast.unparse(f).split()) for f in found)
                return whole.replace(f"def {wanted}(", "def f(")  # as mutants call it
    return ""


@pytest.mark.parametrize("change", explanations(), ids=" ".join)
def test_explained_mutants_are_of_lines_that_are_there(change: tuple[str, str, str]) -> None:
    function, old, new = change
    assert old != new
    assert " ".join(old.split()) in sources(function)
