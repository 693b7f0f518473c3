"""One sweep from its points to its rows, with what was finished before left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gecompiler.sweep.cluster import on_cluster
from gecompiler.sweep.job import Job
from gecompiler.sweep.journal import Journal
from gecompiler.sweep.local import in_process, on_cores
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row


@dataclass(frozen=True)
class Sweep:
    """What is swept and where it is computed."""

    job: Job
    points: tuple[Point, ...]
    journal: Path
    workers: int = 0
    """Processes on this machine; 0 for one per core."""
    cluster: str | None = None
    """Address of a dask scheduler, instead."""
    fresh: bool = False


def run_sweep(
    sweep: Sweep, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Row]:
    """The rows in the order of the points, whatever computed them and in whatever order.

    ``progress`` is told how many of how many points are finished. An interruption leaves the
    finished ones in the journal. UsageError for a journal of another sweep.
    """
    with Journal(sweep.journal, sweep.job.key, fresh=sweep.fresh) as journal:
        left = journal.missing(sweep.points)
        done = len(sweep.points) - len(left)
        progress(done, len(sweep.points))
        if left:
            for row in _compute(sweep, left):
                journal.add(row)
                done += 1
                progress(done, len(sweep.points))
        return [journal.rows[point] for point in sweep.points]


def _compute(sweep: Sweep, points: Sequence[Point]) -> Iterator[Row]:
    if sweep.cluster is not None:
        return on_cluster(sweep.cluster, sweep.job, points)
    workers = sweep.workers or len(os.sched_getaffinity(0))
    if min(workers, len(points)) == 1:
        return in_process(sweep.job, points)
    return on_cores(sweep.job, points, workers)
