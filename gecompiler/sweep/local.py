"""Points on all local cores. The model is optimised once in each process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from gecompiler.sweep.job import Job, evaluate
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row

_TRIES = 3
"""How often a pool whose worker was killed is set up again before its points fail."""


def in_process(job: Job, points: Sequence[Point]) -> Iterator[Row]:
    """One after the other in this process."""
    for point in points:
        yield evaluate(job, point)


def on_cores(job: Job, points: Sequence[Point], workers: int) -> Iterator[Row]:
    """On that many processes, as they finish. Points of a worker that dies are tried again.

    What has killed workers `_TRIES` times (out of memory, as a rule) is given as failed.
    """
    left = list(points)
    for _ in range(_TRIES):
        done: set[Point] = set()
        try:
            for row in _pool(job, left, workers):
                done.add(row.point)
                yield row
        except BrokenProcessPool:
            left = [point for point in left if point not in done]
            continue
        return
    for point in left:
        yield Row(*point, error="its process was killed (was there too little memory?)")


def _pool(job: Job, points: Sequence[Point], workers: int) -> Iterator[Row]:
    # Spawned, not forked: libraries of this process may have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, len(points)), context, initializer=_begin, initargs=(job,)
    )
    try:
        futures = [pool.submit(_evaluate, point) for point in points]
        for future in as_completed(futures):
            yield future.result()
    finally:
        # Also when the caller is interrupted: what runs is of no more use.
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


_JOB: Job | None = None


def _begin(job: Job) -> None:
    """Sets a worker up: Ctrl-C is the parent's to handle, and without a parent there is no use."""
    global _JOB  # noqa: PLW0603  (a process pool hands its workers nothing but globals)
    _JOB = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _evaluate(point: Point) -> Row:
    if _JOB is None:
        raise RuntimeError("the worker was not set up")
    return evaluate(_JOB, point)
