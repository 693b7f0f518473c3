"""Sweeps on a local dask cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gecompiler.option_table import Options
from gecompiler.request import Controls
from gecompiler.sweep import Sweep, grid, run_sweep
from gecompiler.sweep.cluster import ClusterError
from gecompiler.sweep.job import Job, evaluate, make_job
from gecompiler.sweep.output import csv_text

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")

POINTS = grid(("ascend910",), (1, 4), (8, 16, 32), ("auto", "single"), (1, 2))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import dask

    waits = ("connect", "tcp")  # a busy machine is waited for
    patient = {f"distributed.comm.timeouts.{wait}": "600s" for wait in waits}
    with (
        dask.config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50, host="127.0.0.1",
        ) as found,
    ):  # fmt: skip
        yield found


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECT_SECONDS", "RESTART_SECONDS"):
        monkeypatch.setattr(f"gecompiler.sweep.cluster.{name}", 600)


@pytest.fixture(scope="module")
def job(tiny_path: Path) -> Job:
    return make_job(str(tiny_path), ("ascend910",), Options(), Controls(), send=True)


def test_the_model_goes_along(job: Job, tiny_path: Path) -> None:
    assert job.data == tiny_path.read_bytes()


def test_equal_results_also_when_a_worker_is_killed_midway(
    cluster: Any, job: Job, tmp_path: Path
) -> None:
    expected = csv_text([evaluate(job, point) for point in POINTS])
    address = cluster.scheduler_address
    assert csv_text(run_sweep(Sweep(job, POINTS, tmp_path / "a", cluster=address))) == expected

    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if done == 2:
            process = next(iter(cluster.workers.values()))
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    rows = run_sweep(Sweep(job, POINTS, tmp_path / "b", cluster=address), kill)
    assert killed
    assert csv_text(rows) == expected


def test_no_scheduler_is_a_message(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecompiler.sweep.cluster.CONNECT_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "tcp://127.0.0.1:99999999"):
        with pytest.raises(ClusterError):
            run_sweep(Sweep(job, POINTS, tmp_path / "j", cluster=address))


def test_points_whose_model_is_lost_are_given_out_again(
    cluster: Any, job: Job, tmp_path: Path
) -> None:
    """Both workers die, and with them every copy of the model."""
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if done == 1:
            for process in cluster.workers.values():
                killed.append(process.pid)
                os.kill(process.pid, signal.SIGKILL)

    points = POINTS[:8]
    rows = run_sweep(Sweep(job, points, tmp_path / "c", cluster=cluster.scheduler_address), kill)
    assert len(killed) == 2
    assert [row.error for row in rows] == [""] * len(points)
