"""Run in an environment that has only the wheel: everything the tree has is in it, and works.

Usage: python wheel_check.py CHECKOUT (from a folder outside the checkout).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGES = ("gecompiler", "ir", "passes", "backends", "models")
DATA = {".py", ".yaml", ".json", ".typed", ".html", ".css", ".js"}


def expected(checkout: Path) -> set[str]:
    """Paths inside the installed package of every module and data file of the tree."""
    found = set()
    for package in PACKAGES:
        for path in (checkout / package).rglob("*"):
            if path.suffix in DATA or path.name == "py.typed":
                inside = path.relative_to(checkout)
                found.add(
                    str(inside.relative_to("gecompiler") if package == "gecompiler" else inside)
                )
    return found


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    import gecompiler

    home = Path(gecompiler.__file__).resolve().parent
    assert home != checkout / "gecompiler", f"{home} is the checkout, not the wheel"
    missing = sorted(name for name in expected(checkout) if not (home / name).is_file())
    assert not missing, f"not in the wheel: {missing}"
    command = [sys.executable, "-m", "gecompiler", "compile", "gpt2", "--batch", "1", "--seq", "64"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"wheel: {len(expected(checkout))} files, gec compile works")  # noqa: T201


if __name__ == "__main__":
    main()
