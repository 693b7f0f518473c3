"""The tree that mutmut works on: the package as it is when installed, its tests, a setup.cfg.

The checkout keeps ``ir``, ``passes``, ``backends`` and ``models`` beside the front door; mutmut
wants a package's modules where they are imported from.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from mutation_groups import Group

ROOT = Path(__file__).resolve().parents[2]

_PYPROJECT = """
[project]
name = "mutated"
version = "0"

[tool.pytest.ini_options]
addopts = "-q --strict-markers --import-mode=importlib -m 'not slow' -p no:cacheprovider"
filterwarnings = ["error"]
markers = ["slow: takes more than a few seconds"]
"""

_DEEPER = """
import sys
sys.setrecursionlimit(20_000)  # mutmut calls each function through two others
"""

_MAKE = """
from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants
copy_src_dir()
copy_also_copy_files()
create_mutants(1)
"""


def lay_tree(folder: Path, group: Group) -> None:
    """Lays the tree of the checkout as it is now, and makes all mutants of the group in it."""
    shutil.rmtree(folder, ignore_errors=True)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gecompiler", folder / "gecompiler", ignore=skip)
    for part in ("ir", "passes", "backends", "models"):
        shutil.copytree(ROOT / part, folder / "gecompiler" / part, ignore=skip)
    for part in ("ir", "passes", "backends"):
        shutil.copytree(ROOT / "tests" / part, folder / "tests" / part, ignore=skip)
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    (folder / "tests" / "conftest.py").write_text(conftest + _DEEPER)
    (folder / "pyproject.toml").write_text(_PYPROJECT)
    keys = {
        "source_paths": ("gecompiler/",),
        "only_mutate": group.sources,
        "pytest_add_cli_args_test_selection": group.tests,
    }
    lines = ["[mutmut]", "use_git_change_detection=false", "track_dependencies=false"]
    lines.append("timeout_multiplier=5")  # mutants that never end are many
    for key, values in keys.items():
        lines += [f"{key}=", *(f"    {value}" for value in values)]
    (folder / "setup.cfg").write_text("\n".join(lines) + "\n")
    (folder / "mutants").mkdir()
    mutmut(folder, "-c", _MAKE)


def mutmut(folder: Path, *arguments: str) -> None:
    """Runs Python in the tree; its output goes to ``mutmut.log`` there."""
    with (folder / "mutmut.log").open("a", encoding="utf-8") as log:
        subprocess.run([sys.executable, *arguments], cwd=folder, stdout=log, stderr=log, check=True)
