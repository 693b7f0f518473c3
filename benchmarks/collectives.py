"""How far collectives are from measured ones, by platform, collective and number of cards.

    python -m benchmarks.collectives [--data DIR] [--json] [--folds | --fit [TOPOLOGY ...]]

Reads the collectives among the files that `benchmarks.fidelity` reads, predicts each by the
algorithm, protocol and links of its topology, and prints mean absolute percentage errors above
and below 1 MB: on the half of the shapes that no fit has seen, and on the half that was fitted.

``--folds`` fits five times instead, each time to four fifths of the shapes, and prints the errors
on the fifth left out, with their median and worst, and the least that is possible; then those of
cards that are predicted by the figures of another file (`benchmarks.collectives_folds`).

``--fit`` fits the latencies, start-ups, efficiencies and switch sizes of the topologies to that
half and writes them into their files, with their source. Nothing else is fitted.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fidelity import default_folder, gather
from benchmarks.fidelity_rows import Row
from benchmarks.fidelity_score import device_for

BARS = {"collective_over_1mb": 12.0, "collective_under_1mb": 25.0}


@dataclass(frozen=True)
class Line:
    """Errors of one group of rows, in percent; None where there are none of that kind."""

    group: tuple[str, ...]
    rows: int
    held: float | None
    fitted: float | None
    all: float


def collectives(rows: Sequence[Row]) -> list[Row]:
    """The rows that are collectives."""
    return [row for row in rows if row.case.collective is not None]


def error_percent(row: Row) -> float:
    """Signed."""
    return 100 * (row.kernels_us(device_for(row.device)) / row.measured_us - 1.0)


def platform_of(row: Row) -> str:
    """The topology by name."""
    case = row.case.collective
    assert case is not None
    return case.topology_of(device_for(row.device)).name


def cards_of(row: Row) -> str:
    """How many cards took part, and in how many servers where it is not one."""
    case = row.case.collective
    assert case is not None
    servers = len({card // 8 for card in case.cards})
    return f"{len(case.cards)}" if servers == 1 else f"{len(case.cards)} in {servers}"


def size_of(row: Row) -> str:
    """The size class."""
    return "over 1 MB" if row.family == "collective_over_1mb" else "under 1 MB"


def groups(rows: Sequence[Row], *, each: bool) -> list[Line]:
    """A line for each data set and size class; with ``each`` for each platform, op and group."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        case = row.case.collective
        assert case is not None
        key: tuple[str, ...] = (row.data_set, size_of(row))
        if each:
            key = (row.data_set, platform_of(row), case.op_type, cards_of(row), size_of(row))
        found.setdefault(key, []).append(row)
    return [_line(key, members) for key, members in sorted(found.items())]


def _line(key: tuple[str, ...], rows: Sequence[Row]) -> Line:
    held = [abs(error_percent(r)) for r in rows if not r.fitted]
    fitted = [abs(error_percent(r)) for r in rows if r.fitted]
    return Line(key, len(rows), _mean(held), _mean(fitted), statistics.fmean(held + fitted))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"


def show(lines: Sequence[Line]) -> None:
    """A table for people."""
    width = max(len("  ".join(line.group)) for line in lines)
    print(f"{'':<{width}}{'rows':>6}{'held':>9}{'fitted':>9}{'all':>9}")
    for line in lines:
        values = (_shown(v) for v in (line.held, line.fitted, line.all))
        print(
            f"{'  '.join(line.group):<{width}}{line.rows:>6}" + "".join(f"{v:>9}" for v in values)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folds", action="store_true", help="cross-validation; some minutes")
    parser.add_argument("--fit", nargs="*", metavar="TOPOLOGY", help="fit and write the topologies")
    given = parser.parse_args()
    found = gather(given.data or default_folder())
    rows = collectives(found.rows)
    if given.fit is not None:
        from benchmarks.collectives_fit import fit_all
        from benchmarks.fidelity_fit import write_seen

        write_seen(found.rows)
        fit_all(rows, given.fit)
        return
    if given.folds:
        from benchmarks import collectives_folds as folds

        parts = [folds.cells(folds.by_folds(rows)), folds.cells(folds.by_transfer(rows))]
        if given.json:
            print(json.dumps([vars(line) for part in parts for line in part], indent=2))
            return
        for part in parts:
            folds.show(part)
            print()
        return
    lines = groups(rows, each=True), groups(rows, each=False)
    if given.json:
        print(json.dumps([vars(line) for part in lines for line in part], indent=2))
        return
    for part in lines:
        show(part)
        print()


if __name__ == "__main__":
    main()
