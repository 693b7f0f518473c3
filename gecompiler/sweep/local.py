"""Points on all local cores. The model is optimised once in each process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from gecompiler.sweep.job import Job, evaluate
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row

_TRIES = 2
"""How often a point may kill the process that has it to itself before it fails."""


def in_process(job: Job, points: Sequence[Point]) -> Iterator[Row]:
    """One after the other in this process."""
    for point in points:
        yield evaluate(job, point)


def on_cores(job: Job, points: Sequence[Point], workers: int) -> Iterator[Row]:
    """On that many processes, as they finish.

    Where a worker is killed (out of memory, as a rule), the points that were under way are tried
    one at a time, so that the one at fault fails and no other.
    """
    left = list(points)
    while left:
        done: set[Point] = set()
        try:
            for row in _pool(job, left, workers):
                done.add(row.point)
                yield row
        except BrokenProcessPool:
            left = [point for point in left if point not in done]
        else:
            return
        for point in left[: workers + 1]:  # handed out in order, one ahead of need
            yield _alone(job, point)
        left = left[workers + 1 :]


def _alone(job: Job, point: Point) -> Row:
    for _ in range(_TRIES):
        try:
            return next(_pool(job, [point], 1))
        except BrokenProcessPool:
            continue
    return Row.at(point, error="its process was killed (was there too little memory?)")


def _pool(job: Job, points: Sequence[Point], workers: int) -> Iterator[Row]:
    # Spawned, not forked: libraries of this process may have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, len(points)), context, initializer=_begin, initargs=(job,)
    )
    try:
        with _interrupts_held():  # processes start here
            futures = [pool.submit(_evaluate, point) for point in points]
        broken: BrokenProcessPool | None = None
        for future in as_completed(futures):
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                broken = error
            else:
                yield future.result()
        if broken is not None:
            raise broken
    finally:
        # Also when the caller is interrupted: what runs is of no more use.
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Holds Ctrl-C back: processes that start within inherit that, until `_begin` ignores it."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
