"""Imports only point down: ir <- passes, backends, models <- gecompiler; every folder ships."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "ir": {"ir"},
    "passes": {"ir", "passes"},
    "backends": {"ir", "backends"},
    "models": {"ir", "models"},
}
FRONT = "gecompiler"


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def _layer(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "gecompiler":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else FRONT


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_no_import_points_up(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for module in _imports(path)
        if (layer := _layer(module)) is not None and layer not in ALLOWED[package]
    ]
    assert not wrong


def test_packages_are_imported_by_their_full_name() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for folder in (*ALLOWED, FRONT, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in _imports(path)
        if module.split(".")[0] in ALLOWED
    ]
    assert not wrong


def test_no_module_grows_beyond_a_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in (*ALLOWED, FRONT)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_every_package_folder_is_listed_for_the_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    missing = []
    for folder in (*ALLOWED, FRONT):
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            parts = init.parent.relative_to(ROOT).parts
            name = ".".join(parts if parts[0] == FRONT else (FRONT, *parts))
            if f'"{name}"' not in text:
                missing.append(name)
    assert not missing


def _folders() -> set[str]:
    """The name of every package in the tree."""
    found = set()
    for top in (*ALLOWED, FRONT):
        prefix = [] if top == FRONT else [FRONT]
        for path in (ROOT / top).rglob("__init__.py"):
            found.add(".".join([*prefix, *path.parent.relative_to(ROOT).parts]))
    return found


def test_every_package_is_listed_for_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = settings["tool"]["setuptools"]["packages"]
    places = settings["tool"]["setuptools"]["package-dir"]
    assert len(set(listed)) == len(listed)
    assert set(listed) == _folders()
    assert set(places) == _folders()
