"""Points on a dask.distributed cluster (the extra ``cluster``).

Workers need this package at the same version. A worker that dies loses nothing: the scheduler
gives its points to another one, and what died along with the only copy of the model is sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gecompiler import __version__
from gecompiler.ir.errors import GecError, UsageError
from gecompiler.sweep.job import Job, evaluate
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row

CONNECT_SECONDS = 10
RESTART_SECONDS = 60
"""How long workers that vanished may take to be there again."""
_TRIES = 3
"""How often points whose workers vanished are given out before they fail."""


class ClusterError(GecError):
    """A cluster that cannot be reached or used."""

    exit_code = 2


def on_cluster(address: str, job: Job, points: Sequence[Point]) -> Iterator[Row]:
    """The rows as they finish; ClusterError where there is no cluster or another version."""
    try:
        from distributed import Client, as_completed
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
    except ImportError:
        raise UsageError(
            "needs dask.distributed, which is not installed",
            where="--cluster",
            hint="pip install 'gecompiler[cluster]'",
        ) from None
    connect: Any = Client  # its functions have no types
    finished: Any = as_completed
    parse: Any = parse_address
    parse_place: Any = parse_host_port
    backend: Any = get_backend
    try:
        # Before there is a client: one that fails half-way takes long to go, and complains.
        scheme, place = parse(address)
        backend(scheme)
        if scheme in ("tcp", "tls"):
            parse_place(place)
        client = connect(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(
            f"no scheduler answers: {str(error).splitlines()[0]}",
            where=address,
            hint="start one with 'dask scheduler' and 'dask worker'; an address is tcp://host:8786",
        ) from None
    with client:
        left = list(points)
        for attempt in range(_TRIES):
            vanished: list[Point] = []
            try:
                if attempt:
                    client.wait_for_workers(1, timeout=RESTART_SECONDS)
                _check_workers(client, address)
                yield from _round(client, finished, job, left, attempt, vanished)
            except OSError as error:
                raise ClusterError(
                    f"its scheduler or its workers went away: {error}",
                    where=address,
                    hint="finished points are kept; the same command goes on",
                ) from None
            left = vanished
            if not left:
                return
        for point in left:
            yield Row.at(point, error="on the cluster: its workers vanished")


def _round(
    client: Any,
    finished: Any,
    job: Job,
    points: Sequence[Point],
    attempt: int,
    vanished: list[Point],
) -> Iterator[Row]:
    """Gives the points out once; those that got lost with their workers go to ``vanished``."""
    shared = client.scatter(job, broadcast=True, hash=False)
    # The key says what is computed: the same point of the same job is the same result.
    points_of = {f"gec-{job.key[:16]}-{attempt}-{point}": point for point in points}
    futures = [
        client.submit(evaluate, shared, point, pure=False, key=key)
        for key, point in points_of.items()
    ]
    try:
        for future in finished(futures, loop=client.loop):
            point = points_of[future.key]
            if future.status in ("finished", "error"):
                yield _row(future, point)
            else:  # cancelled or lost: the model's only copy went with its worker
                vanished.append(point)
    finally:
        client.cancel(futures)


def _row(future: Any, point: Point) -> Row:
    if future.status == "finished":
        row = future.result()
        if not isinstance(row, Row):
            raise ClusterError(f"a worker gave {type(row).__name__}, not a row")
        return row
    error = future.exception()
    return Row.at(point, error=f"on the cluster: {type(error).__name__}: {error}".splitlines()[0])


def _check_workers(client: Any, address: str) -> None:
    """ClusterError unless there are workers and all of them have this version."""
    try:
        found = client.run(_version)
    except ImportError as error:
        raise ClusterError(
            f"its workers have no gecompiler: {error}", where=address, hint="install it there"
        ) from None
    if not found:
        raise ClusterError("it has no workers", where=address, hint="start some: dask worker")
    others = sorted({v for v in found.values() if v != __version__})
    if others:
        raise ClusterError(
            f"its workers have version {', '.join(others)}, here is {__version__}", where=address
        )


def _version() -> str:
    return __version__
