"""How far the device model is from measured operators, per data set and op family.

    python -m benchmarks.fidelity [--data DIR] [--json] [--worst N] [--fit]

Predicts every row of the files it knows in DIR, by default the measured data beside the
checkout (``../shared/measured``) and else the copy in ``benchmarks/data``, and prints the
absolute percentage errors on the half of the shapes that no fit has seen, beside a plain
roofline at the datasheet's rates and a fitted baseline (one efficiency, one constant).

``--fit`` fits the profiles' few physical parameters to the other half and writes them into the
profiles of this checkout, with their source.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fidelity_readers import Found, read
from benchmarks.fidelity_score import Score, scores, seen_by_fits, was_seen

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "benchmarks" / "data"


def default_folder() -> Path:
    """The measured data beside the checkout, else the copy in the repository."""
    beside = ROOT.parent / "shared" / "measured"
    return beside if beside.is_dir() else COPY


def gather(folder: Path) -> Found:
    """The rows of the folder, and the few rows that only the copy has."""
    found = read(folder)
    if folder.resolve() == COPY:
        _leave_out_seen(found)
    if folder.resolve() != COPY and folder.resolve() == default_folder().resolve():
        own = read(COPY)
        found.rows += [r for r in own.rows if r.data_set not in found.skipped]
    return found


def _leave_out_seen(found: Found) -> None:
    """The fits were made on more rows than the copy has: its other half is not theirs."""
    seen = seen_by_fits()
    for row in found.rows:
        if not row.fitted and was_seen(row, seen):
            found.skipped[row.data_set]["seen by a fit to the whole data"] += 1
    found.rows = [row for row in found.rows if row.fitted or not was_seen(row, seen)]


def as_json(found: Found, scored: Mapping[str, Mapping[str, Score]]) -> dict[str, Any]:
    """The published form: errors by data set and family, and what was left out."""
    result: dict[str, Any] = {
        data_set: {
            family: {
                "n": s.n,
                "mape_percent": round(s.mape_percent, 3),
                "median_ape_percent": round(s.median_ape_percent, 3),
                "roofline_mape_percent": round(s.roofline_mape_percent, 3),
                "baseline_mape_percent": round(s.baseline_mape_percent, 3),
            }
            for family, s in families.items()
        }
        for data_set, families in scored.items()
    }
    result["skipped"] = {
        data_set: dict(sorted(reasons.items()))
        for data_set, reasons in found.skipped.items()
        if reasons
    }
    return result


def show(found: Found, scored: Mapping[str, Mapping[str, Score]]) -> None:
    """A table for people."""
    print(f"{'data set':<28}{'family':<24}{'n':>5}{'mape':>8}{'median':>8}{'roof':>8}{'base':>8}")
    for data_set, families in scored.items():
        for family, s in families.items():
            print(
                f"{data_set:<28}{family:<24}{s.n:>5}{s.mape_percent:>7.1f}%"
                f"{s.median_ape_percent:>7.1f}%{s.roofline_mape_percent:>7.1f}%"
                f"{s.baseline_mape_percent:>7.1f}%"
            )
            for error, row in s.worst:
                print(f"{'':<12}{error:>+8.0%}  {row.device} {row.shape}: {row.measured_us:.1f} us")
    print("left out:")
    for data_set, reasons in found.skipped.items():
        for reason, count in sorted(reasons.items()):
            print(f"  {data_set}: {count} rows, {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worst", type=int, default=3, metavar="N")
    parser.add_argument("--fit", nargs="*", metavar="STEP", help="fit and write the profiles")
    given = parser.parse_args()
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data {given.data}: no such folder")
    found = gather(given.data or default_folder())
    if given.fit is not None:
        from benchmarks.fidelity_fit import fit_all

        fit_all(found.rows, given.fit)
        return
    scored = scores(found.rows, given.worst)
    if given.json:
        print(json.dumps(as_json(found, scored), indent=2))
    else:
        show(found, scored)


if __name__ == "__main__":
    main()
