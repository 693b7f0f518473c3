"""The search: blocks on one stream, then streams and strategy with those blocks.

The two hardly depend on each other: blocks make an attention shorter wherever it runs, and
placements are compared with the attention that will run. So they are searched in turn, which
is a sum of two searches and not their product.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gecompiler.backends.device import Device, load_device
from gecompiler.option_table import Options
from gecompiler.request import Controls, Request
from gecompiler.sweep import Point, Row, Sweep, run_sweep
from gecompiler.sweep.job import make_job
from gecompiler.sweep.row import ENOUGH
from gecompiler.tuning.blocks import DEFAULT, BlockRow, search_blocks

STRATEGIES = (
    *("default", "critical_path", "compute_overlap", "pipeline", "cv", "heft", "load_balance"),
)
"""Those that place tasks by themselves, quickly; ``auto`` is tried beside them."""


@dataclass(frozen=True)
class Choice:
    """One choice: what it is, the time before and after it."""

    name: str
    value: str
    before_us: float
    after_us: float

    @property
    def gain(self) -> float:
        """The share of time it saves."""
        return 1 - self.after_us / self.before_us if self.before_us else 0.0


@dataclass(frozen=True)
class Tuning:
    """What was found, and all that was tried."""

    model: str
    device: str
    sizes: dict[str, int]
    options: dict[str, Any]
    """The options recommended, by name."""
    choices: tuple[Choice, ...]
    blocks: tuple[BlockRow, ...]
    placements: tuple[Row, ...]


def tune(
    model: str,
    device: str,
    *,
    batch: int | None = None,
    seq: int | None = None,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuning:
    """Searches block sizes, then streams and strategies; GecError for what compiling raises.

    ``progress`` is told how many of how many placements are simulated.
    """
    profile = load_device(device)
    sizes, rows = _blocks(model, profile, device, batch, seq)
    options: dict[str, Any] = {}
    best = next((row for row in rows if row.fits), None)
    if best is not None and best.blocks != DEFAULT:
        options["attention_block_q"], options["attention_block_k"] = best.blocks
    elif best is not None:
        options["attention_block_q"], options["attention_block_k"] = DEFAULT
    points = _points(profile, device, batch or 0, seq or 0)
    start = {"attention_block_q": DEFAULT.queries, "attention_block_k": DEFAULT.keys}
    alone = [p for p in points if p.strategy == "single"]
    first = _run(model, device, start if rows else {}, alone, workers)[0]
    found = _run(model, device, options, points, workers, progress)
    single = next(row for row in found if row.strategy == "single")
    taken = _taken(found)
    choices = [Choice("attention blocks", _text(best), first.time_us, single.time_us)]
    placed = f"{taken.strategy}, {taken.used} stream" + ("" if taken.used == 1 else "s")
    choices.append(Choice("streams and strategy", placed, single.time_us, taken.time_us))
    if taken.strategy != "single":
        options["stream_strategy"] = taken.strategy
    options["num_streams"] = taken.streams
    if taken.strategy == "pipeline":
        options["pipeline_depth"] = taken.streams
    if not rows:
        choices = choices[1:]
    return Tuning(model, device, sizes, options, tuple(choices), rows, tuple(found))


def _blocks(
    model: str, profile: Device, device: str, batch: int | None, seq: int | None
) -> tuple[dict[str, int], tuple[BlockRow, ...]]:
    """The sizes that are tuned for, and the block sizes tried."""
    from gecompiler.driver import compile_source, optimise

    given = {"device": device, "num_streams": 1, "stream_strategy": "single"}
    request = Request(model, batch, seq, options=Options(given))
    compilation = compile_source(optimise(request), request)
    return compilation.binding, search_blocks(profile, compilation.graph)


def _points(profile: Device, device: str, batch: int, seq: int) -> list[Point]:
    most = profile.max_streams
    widths = [n for n in (2, 3, 4, 6, 8) if n < most]
    widths = [n for n in (*widths, most) if 1 < n <= 8]
    placed = [
        Point(device, batch, seq, strategy, count)
        for strategy in (*STRATEGIES, "auto")
        for count in widths
    ]
    return [Point(device, batch, seq, "single", 1), *placed]


def _run(
    model: str,
    device: str,
    options: dict[str, Any],
    points: Sequence[Point],
    workers: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    chosen = Options({**options, "auto_min_gain": 0.0, "pipeline_depth": 8})
    job = make_job(model, (device,), chosen, Controls(), send=False)
    with tempfile.TemporaryDirectory() as folder:
        rows = run_sweep(Sweep(job, tuple(points), Path(folder) / "journal", workers), progress)
    return [row for row in rows if not row.error] or _all_failed(rows)


def _all_failed(rows: Sequence[Row]) -> list[Row]:
    from gecompiler.ir.errors import ScheduleError

    raise ScheduleError(f"no schedule was found: {rows[0].error}", where=rows[0].device)


def _taken(rows: Sequence[Row]) -> Row:
    """The fewest streams within `ENOUGH` of the fastest; of these the fastest, the plainest."""
    best = min(row.time_us for row in rows)
    near = [row for row in rows if row.time_us * (1 - ENOUGH) <= best]
    fewest = min(row.used for row in near)
    return min(
        (row for row in near if row.used == fewest),
        key=lambda row: (row.time_us, row.strategy == "auto", row.streams, row.strategy),
    )


def _text(row: BlockRow | None) -> str:
    return "no attention" if row is None else f"{row.blocks.queries} x {row.blocks.keys}"
