"""Stream allocation scenarios with known results, run with the product's own allocator.

    python -m benchmarks.ge_cases FILE.yaml

Prints a line per scenario, what was expected and what came out; exit 1 if one differs. A
scenario is a mapping with an ``id`` and one of these forms:

- ``units`` (name: engine, with ``label``, ``user_label`` or ``force_attach``), ``edges``
  (``a>b``), and perhaps ``engines``, ``cap``, ``option``: the static allocator. Each unit is a
  cluster with the id that the ladder gives it; with ``level: node`` a node, whose stream may be
  folded away and has a dense id. ``option: {auto_mode: LoadBalance:2}``: an automatic mode;
- the same with ``mode: dynamic``: the dynamic one, where ``chain: a(ENGINE) > b(ENGINE)`` does
  for units and edges;
- ``nodes`` (name: stream) and ``chain`` or ``edges``: folding of streams that do not overlap;
- ``streams`` (name: units in order) and ``cases`` of ``events``: the rules R1 and R2;
- ``main`` and ``branch_...`` (name: stream): event ids of branches of which one runs;
- ``cases`` that tell of numbers of nodes and tasks: the cut into physical streams.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from benchmarks.ge_network import Case, Row
from benchmarks.ge_split_cases import split_rows
from benchmarks.ge_static_cases import dynamic_rows, static_rows
from benchmarks.ge_sync_cases import branch_rows, folding_rows, rule_rows
from gecompiler.ir.errors import GecError


def rows_of(case: Case) -> Iterator[Row]:
    """Runs a scenario, whatever its form."""
    forms: list[tuple[bool, Callable[[Case], Iterator[Row]]]] = [
        (case.get("mode") == "dynamic", dynamic_rows),
        ("nodes" in case, folding_rows),
        ("streams" in case, rule_rows),
        ("main" in case, branch_rows),
        ("units" in case, static_rows),
    ]
    for fits, form in forms:
        if fits:
            yield from form(case)
            return
    for part in case["cases"]:
        if "units" in part:
            inherited = {k: v for k, v in case.items() if k not in ("id", "cases")}
            option = {**inherited.pop("option", {}), **part.get("also", {})}
            yield from static_rows({**inherited, **part, "option": option})
        else:
            yield from (Row(*row) for row in split_rows(part))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per scenario; 1 when one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ge_cases", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    failed = False
    for case in yaml.safe_load(parser.parse_args(arguments).file.read_text(encoding="utf-8")):
        rows, problem = [], "nothing to run"
        try:
            rows = list(rows_of(case))
        except (GecError, AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"cannot be run: {type(error).__name__}: {error}"
        same = bool(rows) and all(row.expected == row.got for row in rows)
        failed |= not same
        told = "; ".join(f"{r.name or 'all'}: expected {r.expected}, got {r.got}" for r in rows)
        print(f"{'ok  ' if same else 'DIFF'} {case['id']}: {told or problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
