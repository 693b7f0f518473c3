"""Errors of collectives on rows that took no part in the fit, fold by fold.

A hash of its shape says which fold a row is in, by other bits than those that make the halves.
Each fold is predicted by figures and switch sizes that were fitted to the others, from a start
that has seen no data, so that the form of the model can be judged on every row. Beside the error
stands the least that is possible: that of the best times which do not fall with the size, found
with all rows known. What is left of it is scatter that no such model explains.

A file's cards may also be predicted by the figures of another file's (`TRANSFERS`), with nothing
fitted to it at all.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from benchmarks.collectives import cards_of, platform_of, size_of
from benchmarks.collectives_fit import (
    changed,
    fit,
    names,
    predicted_us,
    table,
    tables,
    with_table,
)
from benchmarks.fidelity_rows import Row, collective, digest
from benchmarks.fidelity_score import device_for
from gecompiler.backends.topology import read_topology
from gecompiler.backends.topology.read import TopologyProfile

FOLDS = 5
START = {
    "copy_gb_per_s": 600.0,
    "start_us": 10.0,
    "issue_us": 0.5,
    "latency_us": 2.0,
    "efficiency_fraction": 0.4,
}
"""Where every fit begins, by the last part of a figure's name."""
FIRST_SWITCH, NEXT_SWITCH, SWITCHES = 65536.0, 8.0, 3
"""Bytes of the first switch size, the factor to the next, and how many differ."""
TRANSFERS = {"a100-servers": "dgx-a100", "a100-pairs": "dgx-a100"}
"""Topologies whose nearest cards are linked as those of another, which other files determined."""


def fold_of(row: Row) -> int:
    """The same for a shape wherever it is."""
    return digest(row.shape)[1] % FOLDS


@dataclass(frozen=True)
class Judged:
    """A row, and what a fit says of it that has not seen it."""

    row: Row
    us: float

    @property
    def error_percent(self) -> float:
        """Absolute."""
        return 100 * abs(self.us / self.row.measured_us - 1.0)


def neutral(profile: TopologyProfile) -> TopologyProfile:
    """The same with every fitted figure and switch size at a round value."""
    for name in names(profile):
        profile = changed(profile, name, START[name.rsplit(".", 1)[-1]])
    for number, place in enumerate(tables(profile)):
        size = FIRST_SWITCH * NEXT_SWITCH ** (number % SWITCHES)
        profile = with_table(profile, place, dict.fromkeys(table(profile, place), size))
    return profile


def by_folds(rows: Sequence[Row]) -> list[Judged]:
    """Every row by the fit to the other folds of its topology."""
    found: list[Judged] = []
    for name in sorted({platform_of(row) for row in rows}):
        members = [row for row in rows if platform_of(row) == name]
        start = neutral(read_topology(name))
        for fold in range(FOLDS):
            rest = [row for row in members if fold_of(row) == fold]
            seen = [row for row in members if fold_of(row) != fold]
            if rest and seen:
                profile = fit(start, seen)[0]
                found += [Judged(row, predicted_us(profile, row)) for row in rest]
    return found


def by_transfer(rows: Sequence[Row]) -> list[Judged]:
    """The all-reduces within a nearest unit by another topology's figures, nothing fitted."""
    found: list[Judged] = []
    for row in rows:
        case, other = row.case.collective, TRANSFERS.get(platform_of(row))
        if case is None or other is None or case.op_type != "AllReduce":
            continue
        if max(case.cards) < read_topology(platform_of(row)).tiers[0].span:
            moved = replace(row, case=collective(replace(case, topology=other)))
            found.append(Judged(row, moved.kernels_us(device_for(row.device))))
    return found


@dataclass(frozen=True)
class Cell:
    """What is said of one group of rows; percentages."""

    group: tuple[str, ...]
    rows: int
    mean: float
    median: float
    worst: float
    least: float
    """The mean error of the best times that never fall as the size grows."""


def cells(judged: Sequence[Judged]) -> list[Cell]:
    """By topology, collective, cards and size class; and by data set and size class."""
    fine: dict[tuple[str, ...], list[Judged]] = {}
    whole: dict[tuple[str, ...], list[Judged]] = {}
    for one in judged:
        row, case = one.row, one.row.case.collective
        assert case is not None
        key = (row.data_set, platform_of(row), case.op_type, cards_of(row), size_of(row))
        fine.setdefault(key, []).append(one)
        whole.setdefault((row.data_set, size_of(row)), []).append(one)
    small = {key: _cell(key, members, least_error(members)) for key, members in fine.items()}
    found = [small[key] for key in sorted(small)]
    for key, members in sorted(whole.items()):
        parts = [c for c in found if (c.group[0], c.group[-1]) == key]
        least = sum(c.least * c.rows for c in parts) / len(members)
        found.append(_cell(key, members, least))
    return found


def _cell(key: tuple[str, ...], members: Sequence[Judged], least: float) -> Cell:
    errors = [one.error_percent for one in members]
    mean, median = statistics.fmean(errors), statistics.median(errors)
    return Cell(key, len(errors), mean, median, max(errors), least)


def least_error(judged: Sequence[Judged]) -> float:
    """The least mean absolute percentage error of times that do not fall with the size.

    Isotonic regression: some best times are all measured ones, so that for each prefix of the
    sizes the least error that ends at or below each measured time is enough. O(n^2).
    """
    order = sorted(judged, key=lambda one: _size(one.row))
    times = sorted({one.row.measured_us for one in judged})
    best = [0.0] * len(times)
    for one in order:
        below = accumulate(best, min)
        pairs = zip(below, times, strict=True)
        best = [error + abs(us / one.row.measured_us - 1.0) for error, us in pairs]
    return 100 * min(best, default=0.0) / max(1, len(order))


def _size(row: Row) -> float:
    assert row.case.collective is not None
    return row.case.collective.size_bytes


def show(lines: Sequence[Cell]) -> None:
    """A table for people."""
    width = max((len("  ".join(line.group)) for line in lines), default=0)
    print(f"{'':<{width}}{'rows':>6}{'mean':>9}{'median':>9}{'worst':>9}{'least':>9}")
    for line in lines:
        values = (line.mean, line.median, line.worst, line.least)
        shown = "".join(f"{f'{value:.1f}%':>9}" for value in values)
        print(f"{'  '.join(line.group):<{width}}{line.rows:>6}{shown}")
