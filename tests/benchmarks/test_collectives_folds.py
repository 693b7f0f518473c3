"""Cross-validation of collectives: what takes part in which fit, and what is the least error."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from benchmarks.collectives import platform_of
from benchmarks.collectives_fit import names, tables, value
from benchmarks.collectives_folds import (
    FOLDS,
    Judged,
    by_folds,
    by_transfer,
    cells,
    fold_of,
    least_error,
    neutral,
)
from benchmarks.fidelity_links import collective_row
from benchmarks.fidelity_rows import Collective
from gecompiler.backends.topology import read_topology
from gecompiler.backends.topology.read import TopologyProfile


def row(size: int, us: float, cards: int = 2, topology: str = ""):
    case = Collective("AllReduce", float(size), tuple(range(cards)), topology)
    return collective_row("data", "all_reduce", size, us, "a100", case)


def test_a_shape_is_in_one_fold_whatever_it_took():
    rows = [row(1024 * i, 10.0) for i in range(1, 200)]
    folds = [fold_of(r) for r in rows]
    assert folds == [fold_of(replace(r, measured_us=99.0, data_set="other")) for r in rows]
    assert set(folds) == set(range(FOLDS))
    assert max(folds.count(fold) for fold in range(FOLDS)) < 60


def test_a_start_has_seen_no_data():
    profile = neutral(read_topology("a100-servers"))
    assert {value(profile, name) for name in names(profile)} == {10.0, 2.0, 0.4, 600.0, 0.5}
    assert tables(profile)
    again = neutral(profile)
    assert [value(again, name) for name in names(again)] == [
        value(profile, name) for name in names(profile)
    ]


def test_no_row_is_predicted_by_a_fit_that_has_seen_it(monkeypatch: pytest.MonkeyPatch):
    rows = [row(4096 * i, 10.0 + i) for i in range(1, 25)]
    fitted: list[set[str]] = []

    def fit(profile: TopologyProfile, seen):
        fitted.append({r.shape for r in seen})
        return profile, 0.0, 0.0

    monkeypatch.setattr("benchmarks.collectives_folds.fit", fit)
    judged = by_folds(rows)
    assert sorted(j.row.shape for j in judged) == sorted(r.shape for r in rows)
    assert {platform_of(r) for r in rows} == {"dgx-a100"}
    left_out = [{r.shape for r in rows} - seen for seen in fitted]
    assert set.union(*left_out) == {r.shape for r in rows}
    assert sum(map(len, left_out)) == len(rows)
    order = [fold for fold in range(FOLDS) if any(fold_of(r) == fold for r in rows)]
    for fold, out in zip(order, left_out, strict=True):
        assert out == {r.shape for r in rows if fold_of(r) == fold}


def judged(times: list[float]) -> list[Judged]:
    return [Judged(row(1024 * (i + 1), us), 0.0) for i, us in enumerate(times)]


def test_times_that_grow_have_no_least_error():
    assert least_error(judged([1.0, 2.0, 2.0, 5.0])) == 0.0


@pytest.mark.parametrize(
    "times", [[10.0, 46.0, 22.0, 60.0], [60.0, 20.0, 20.0, 61.0], [5.0, 4.0, 3.0], [7.0, 1.0]]
)
def test_the_least_error_is_that_of_the_best_of_all_growing_times(times):
    choices = itertools.combinations_with_replacement(sorted(times), len(times))
    best = min(
        sum(abs(us / m - 1) for us, m in zip(choice, times, strict=True)) / len(times)
        for choice in choices
    )
    assert least_error(judged(times)) == pytest.approx(100 * best)


def test_cards_of_another_file_are_predicted_without_a_fit():
    near = row(1 << 24, 138.0, 2, "a100-servers")
    same = row(1 << 24, 138.0, 2)
    far = replace(near, case=row(1 << 24, 1.0, 16, "a100-servers").case)
    (found,) = by_transfer([near, same, far])
    assert found.row is near
    assert found.us == pytest.approx(same.kernels_us(_device()))


def _device():
    from benchmarks.fidelity_score import device_for

    return device_for("a100")


def test_cells_hold_the_worst_row_and_the_whole():
    found = cells([Judged(row(2048, 10.0), 11.0), Judged(row(4096, 10.0), 15.0)])
    fine, whole = found
    assert (fine.rows, whole.rows) == (2, 2)
    assert fine.mean == pytest.approx(30.0)
    assert whole.worst == pytest.approx(50.0)
    assert whole.group == ("data", "under 1 MB")
